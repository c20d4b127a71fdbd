"""Hostile request bodies, made from the server's own description (GET /openapi.json): each field that a client controls is
replaced in turn by the most expensive values of a given size. A new route or field is attacked without a change here."""
import dataclasses
import functools
import json

import zstandard
from tinker.proto import tinker_public_pb2 as pb

# What openapi.json describes as any JSON. The test fails if a route with a body of unknown form is missing here.
ANY = {}
TEXT, NUMBER, WHOLE = {"type": "string"}, {"type": "number"}, {"type": "integer"}


def of(**properties):
    return {"type": "object", "properties": properties}


COMPLETION = dict(model=TEXT, max_tokens=WHOLE, temperature=NUMBER, stop=ANY, n=WHOLE, seed=WHOLE, logprobs=ANY, user=TEXT,
                  logit_bias=ANY, stream_options=ANY)
OPAQUE = {
    "/api/v1/forward_backward": of(model_id=TEXT, seq_id=WHOLE, forward_backward_input={"$ref": "#/components/schemas/Pass"}),
    "/oai/api/v1/completions": of(prompt=ANY, **COMPLETION),
    "/oai/api/v1/chat/completions": of(messages={"type": "array", "items": of(role=TEXT, content=ANY)}, tools=ANY,
                                       **COMPLETION),
}


def repeated(item, size):
    """Returns a JSON array of about `size` bytes."""
    return "[" + ",".join([item] * max(1, size // (len(item) + 1))) + "]"


def many_keys(size):
    count = max(1, size // 12)
    return "{" + ",".join(f'"k{number:x}":""' for number in range(count)) + "}"


# Each makes the text of a JSON value of about `size` bytes.
SHAPES = {
    "empty objects": lambda size: repeated("{}", size),
    "empty arrays": lambda size: repeated("[]", size),
    "empty strings": lambda size: repeated('""', size),
    "zeros": lambda size: repeated("0", size),
    "nesting": lambda size: "[" * (size // 2) + "]" * (size // 2),
    "long string": lambda size: '"' + "a" * size + '"',
    "escapes": lambda size: '"' + "\\u00e9" * (size // 6) + '"',
    "many keys": many_keys,
    "same key": lambda size: "{" + ",".join(['"seq_id":1'] * (size // 11)) + "}",
    "long number": lambda size: "1" * size,
}


# Without TUFT_LAB these are sent compressed only, and the others plain only.
COMPRESSED = ("empty objects", "empty strings", "zeros", "nesting", "many keys")


# Each makes a text of about `size` bytes that costs a tokenizer most.
TEXTS = {
    "letters": lambda size: "a" * size,
    "spaces": lambda size: " " * size,
    "marks in reverse order": lambda size: "a" + "\u0301" * (size // 4) + "\u0316" * (size // 4),
    "marks in turn": lambda size: "a" + "\u0301\u0316" * (size // 4),
    "composed marks": lambda size: "a" + "\u0344" * (size // 4) + "\u0316" * (size // 4),
}


@functools.lru_cache(maxsize=64)
def value(shape, size):
    return SHAPES[shape](size)


@dataclasses.dataclass
class Attack:
    method: str
    route: str
    path: str
    field: str   # "prompt.chunks"; "" for the whole body
    shape: str
    form: str    # how it lies on the wire
    body: bytes
    headers: dict
    decoded: int

    @property
    def name(self):
        return f"{self.method.upper()} {self.route} {self.field or '(body)'}: {self.shape}, {self.form}"


class Description:
    """openapi.json, with the values that make a request valid."""

    def __init__(self, document, make_known):
        """`make_known` returns the values of fields and path parameters by their names, so that requests reach the
        handlers. It is called for each route, because the requests of some routes end their objects."""
        self.schemas, self.make_known, self.known = document["components"]["schemas"], make_known, make_known()
        self.routes = [(method, route, operation) for route, methods in document["paths"].items()
                       for method, operation in methods.items()]

    def body_schema(self, route, operation):
        """Returns the schema of the body, or None for a route without one."""
        content = operation.get("requestBody", {}).get("content", {})
        if not content:
            return None
        schema = content.get("application/json", {}).get("schema") or OPAQUE.get(route)
        assert schema, f"{route} has a body of unknown form: describe it for /openapi.json, or in OPAQUE of shapes.py"
        return schema

    def resolved(self, schema):
        while "$ref" in schema:
            schema = self.schemas[schema["$ref"].rsplit("/", 1)[1]]
        return next((one for one in schema["anyOf"] if one.get("type") != "null"), {}) if "anyOf" in schema else schema

    def example(self, name, schema):
        """Returns a small valid value, without optional fields."""
        if name in self.known:
            return self.known[name]
        schema = self.resolved(schema)
        if "enum" in schema:
            return schema["enum"][0]
        if schema.get("type") == "object":
            wanted = schema.get("required", list(schema.get("properties", {})))
            return {key: self.example(key, schema["properties"][key]) for key in wanted}
        if schema.get("type") == "array":
            return [self.example(name, schema["items"])]
        return {"string": "a", "integer": 1, "number": 1.0, "boolean": True}.get(schema.get("type"), {})

    def fields(self, schema, prefix=()):
        """Yields the path of every field in a schema, as a tuple of keys; 0 stands for an array's first element."""
        schema = self.resolved(schema)
        if prefix:
            yield prefix
        if schema.get("type") == "object":
            for key, inner in schema.get("properties", {}).items():
                yield from self.fields(inner, (*prefix, key))
        elif schema.get("type") == "array" and self.resolved(schema["items"]).get("properties"):
            yield from self.fields(schema["items"], (*prefix, 0))

    def path_of(self, route, operation):
        for parameter in operation.get("parameters", []):
            if parameter["in"] == "path":
                route = route.replace("{" + parameter["name"] + "}", str(self.known.get(parameter["name"], "a")))
        return route


MARK = "@HOSTILE@"


def with_mark(example, path):
    """Returns the example as JSON with a mark at `path`, making what is missing on the way."""
    if not path:
        return MARK
    key, *rest = path
    if key == 0:
        inner = example[0] if isinstance(example, list) and example else {}
        return [with_mark(inner, rest)]
    example = example if isinstance(example, dict) else {}
    return {**example, key: with_mark(example.get(key), rest)}


def attacks(description, sizes, thorough=True):
    """Yields the attacks on the fields of all JSON bodies. `sizes`: decoded bytes by form, which is
    compressed if it has "zstd" in its name."""
    compressor = zstandard.ZstdCompressor(level=3)
    for method, route, operation in description.routes:
        schema = description.body_schema(route, operation)
        if schema is None:
            continue
        description.known = description.make_known()
        example, path = description.example("", schema), description.path_of(route, operation)
        if "timeout" in description.resolved(schema).get("properties", {}):
            example["timeout"] = 0  # the request is not to wait
        for field in [(), ("unknown",), *description.fields(schema)]:
            template = json.dumps(with_mark(example, field))
            for shape in SHAPES:
                for form, size in sizes.items():
                    if not thorough and (shape in COMPRESSED) != ("zstd" in form):
                        continue
                    body = template.replace(f'"{MARK}"', value(shape, size), 1).encode()
                    headers, decoded = {"Content-Type": "application/json"}, len(body)
                    if "zstd" in form:
                        body, headers["Content-Encoding"] = compressor.compress(body), "zstd"
                    yield Attack(method, route, path, ".".join(map(str, field)), shape, form, body, headers, decoded)


def query_attacks(description, size=60_000):
    """Yields the attacks on path and query parameters, which the limit of a request head bounds."""
    for method, route, operation in description.routes:
        path = description.path_of(route, operation)
        for parameter in operation.get("parameters", []):
            name = parameter["name"]
            for shape, text in (("long", "a" * size), ("escaped", "%41" * (size // 3)), ("slashes", "%2F" * (size // 3))):
                if parameter["in"] == "path":
                    target = route.replace("{" + name + "}", text)
                else:
                    target = f"{path}?{name}={text}"
                yield Attack(method, route, target, name, shape, "head", b"", {}, len(target))
        many = "&".join(f"q{number}=" for number in range(size // 7))
        yield Attack(method, route, f"{path}?{many}", "(query)", "many parameters", "head", b"", {}, len(many))


def protobuf_attacks(model_id, size):
    """Yields (field, shape, message bytes) of tinker_public.ForwardBackwardRequest: every field of every message of it."""
    head = pb.ForwardBackwardRequest(model_id=model_id, seq_id=1, loss_fn="cross_entropy").SerializeToString()
    descriptor = pb.ForwardBackwardRequest.DESCRIPTOR
    for path, shape, payload in wires(descriptor, size):
        yield path, shape, head + payload


def varint(number):
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def delimited(number, payload):
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def wires(descriptor, size, depth=5, prefix=""):
    """Yields (path, shape, bytes) for each field of a message type: many empty ones, one long one, many numbers."""
    for field in descriptor.fields:
        name = f"{prefix}{field.name}"
        if field.type in (field.TYPE_MESSAGE, field.TYPE_BYTES, field.TYPE_STRING):
            empty = delimited(field.number, b"")
            yield name, "many empty", empty * (size // len(empty))
            if field.type != field.TYPE_MESSAGE:
                yield name, "long", delimited(field.number, b"\0" * size)
            elif depth:
                for path, shape, payload in wires(field.message_type, size, depth - 1, name + "."):
                    yield path, shape, delimited(field.number, payload)
        else:
            one = varint(field.number << 3) + b"\1"
            yield name, "many", one * (size // len(one))
            yield name, "packed", delimited(field.number, b"\1" * size)
