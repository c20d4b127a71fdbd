"""Exchanges between a client and the server in a form that can be stored and compared: JSON lines without ids, times
and signed URLs, which differ in every run."""
import base64
import json
import re

import numpy as np
import zstandard
from tinker.proto import tinker_public_pb2 as pb

PROTOBUF = "application/x-protobuf"
# The request headers that may change an answer.
SENT = ("Accept", "Content-Type", "Content-Encoding", "X-Tinker-Request-Type")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")
SIGNED = re.compile(r"https?://127\.0\.0\.1:\d+/[^\"\s]*")
MODEL_PATH = re.compile(r"/[^\"\s]*/tiny(?=\")")
PLACEHOLDER = re.compile(r"<(\w+) (\d+)>")
WORDING = ("detail", "error", "message")  # texts for people: the test checks only that they exist


def content_type(headers):
    return (headers.get("Content-Type") or "").split(";")[0]


# ---- what is kept

class Names:
    """Maps the ids of one recording to placeholders. Replaces long ids first: a short one may be a part of them."""

    def __init__(self):
        self.of = {}

    def learn(self, answer):
        for key, kind in (("session_id", "session"), ("request_id", "future")):
            if isinstance(answer, dict) and isinstance(answer.get(key), str):
                count = sum(1 for name in self.of.values() if name.startswith(f"<{kind} "))
                self.of.setdefault(answer[key], f"<{kind} {count + 1}>")

    def hide(self, text):
        for known in sorted(self.of, key=len, reverse=True):
            text = text.replace(known, self.of[known])
        return MODEL_PATH.sub("<path>", SIGNED.sub("<address>", TIME.sub("<time>", text)))

    def hide_json(self, value):
        return json.loads(self.hide(json.dumps(value)))


def kept_request(body, headers, names):
    if content_type(headers) == PROTOBUF:
        if headers.get("Content-Encoding") == "zstd":
            body = zstandard.ZstdDecompressor().decompressobj().decompress(body)
        message = pb.ForwardBackwardRequest.FromString(body)
        message.model_id = names.hide(message.model_id)
        return {"protobuf": base64.b64encode(message.SerializeToString()).decode()}
    return names.hide_json(json.loads(body)) if body else None


def floats(raw):
    return [round(float(value), 6) for value in np.frombuffer(raw, np.float32)]


def readable(body, headers, request_type):
    """Returns the answer as JSON. Protobuf is decoded."""
    if not body:
        return None
    if content_type(headers) == PROTOBUF:
        return readable_sample(body) if request_type == "Sample" else readable_pass(body)
    if content_type(headers) != "application/json":
        return {"bytes": len(body)}
    return json.loads(body)


def without_chance(answer):
    """Keeps only the number of sequences that were sampled without a seed, because nothing else is reproducible."""
    return {**answer, "sequences": len(answer["sequences"])}


def readable_sample(body):
    message = pb.SampleResponse.FromString(body)
    found = {"sequences": [{"stop_reason": one.stop_reason, "tokens": np.frombuffer(one.tokens, np.int32).tolist(),
                            "logprobs": floats(one.logprobs)} for one in message.sequences]}
    if message.HasField("prompt_logprobs"):
        found["prompt_logprobs"] = [None if np.isnan(value) else value for value in floats(message.prompt_logprobs)]
    if message.HasField("topk_prompt_logprobs"):
        topk = message.topk_prompt_logprobs
        found["topk_prompt_logprobs"] = {"k": topk.k, "length": topk.prompt_length, "logprobs": floats(topk.logprobs),
                                         "tokens": np.frombuffer(topk.token_ids, np.int32).tolist()}
    return found


def readable_pass(body):
    message = pb.ForwardBackwardOutput.FromString(body)
    records = [{"datums": record.num_datums, "fields": {
        name: {"data": floats(batched.data), "dtype": batched.dtype, "trailing_shape": list(batched.trailing_shape),
               "offsets": np.frombuffer(batched.offsets, np.int64).tolist()}
        for name, batched in record.fields.items()}} for record in message.loss_fn_outputs]
    return {"type": message.loss_fn_output_type, "records": records, "metrics": dict(message.metrics)}


# ---- sending again

class Replay:
    """Replaces placeholders by the ids of this run. Learns each id where it first appears in an answer."""

    def __init__(self, client):
        self.client, self.ids = client, {}

    def fill(self, text):
        return PLACEHOLDER.sub(lambda found: self.ids[found.group()], text)

    def send(self, exchange):
        request, headers = exchange["request"], exchange["headers"]
        if isinstance(request, dict) and set(request) == {"protobuf"}:
            message = pb.ForwardBackwardRequest.FromString(base64.b64decode(request["protobuf"]))
            message.model_id = self.fill(message.model_id)
            body = message.SerializeToString()
            if headers.get("Content-Encoding") == "zstd":
                body = zstandard.compress(body)
        else:
            body = None if request is None else self.fill(json.dumps(request))
        while True:  # polls until the result is ready, as the SDK does
            answer = self.client.request(exchange["method"], self.fill(exchange["path"]), body, headers)
            if answer.status != 408:
                return answer

    def differences(self, expected, got, where=""):
        """Returns the differences between the answer and the recording, as texts."""
        if isinstance(expected, bool) or expected is None or isinstance(got, bool):
            return [] if expected is got else [f"{where}: {got!r} instead of {expected!r}"]
        if isinstance(expected, dict) and isinstance(got, dict):
            found = [f"{where}.{key}: missing" for key in expected.keys() - got.keys()]
            found += [f"{where}.{key}: new" for key in got.keys() - expected.keys()]
            for key in [key for key in expected if key in got]:
                if key in WORDING and isinstance(expected[key], str):
                    found += [] if isinstance(got[key], str) and got[key] else [f"{where}.{key}: no message"]
                else:
                    found += self.differences(expected[key], got[key], f"{where}.{key}")
            return found
        if isinstance(expected, list) and isinstance(got, list):
            if len(expected) != len(got):
                return [f"{where}: {len(got)} elements instead of {len(expected)}"]
            return [one for i, (a, b) in enumerate(zip(expected, got)) for one in self.differences(a, b, f"{where}[{i}]")]
        if isinstance(expected, str) and isinstance(got, str):
            return [] if self.same_text(expected, got) else [f"{where}: {got!r} instead of {expected!r}"]
        if isinstance(expected, (int, float)) and isinstance(got, (int, float)):
            exact = isinstance(expected, int) and isinstance(got, int) and not where.endswith("size_bytes")
            same = expected == got if exact else abs(expected - got) <= 1e-3 + 5e-3 * abs(expected)
            return [] if same else [f"{where}: {got!r} instead of {expected!r}"]
        return [f"{where}: {got!r} instead of {expected!r}"]

    def same_text(self, expected, got):
        pattern, end, unbound = "", 0, []
        for found in PLACEHOLDER.finditer(expected):
            pattern += re.escape(expected[end:found.start()])
            if found.group() in self.ids:
                pattern += re.escape(self.ids[found.group()])
            else:
                unbound.append(found.group())
                pattern += r"([A-Za-z0-9._-]+)" if found.group().startswith("<session") else r"([A-Za-z0-9._:-]+)"
            end = found.end()
        pattern += re.escape(expected[end:])
        for name, form in (("<time>", TIME.pattern.replace("(", "(?:")), ("<address>", r"https?://\S+"), ("<path>", r"/\S+")):
            pattern = pattern.replace(name, form)
        match = re.fullmatch(pattern, got)
        if match:
            self.ids.update(zip(unbound, match.groups()))
        return bool(match)
