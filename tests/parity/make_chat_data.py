#!/usr/bin/env python3
"""Writes tests/parity/data/chat: templates (our own, from chat/), conversations, the texts that transformers and
Jinja make of them, and about two thousand random expressions, statements and white space cases. Run it with an
interpreter that has `transformers` and `jinja2`; their versions are written into the files. A case is one line:
{"template": source or name, "chat": name, "options": ..., "text": rendered or null for an error, "raised": text}.

The random cases contain some constructs outside the subset (docs/adr/0013-chat-templates.md). The parity test reports
each as "not supported" or as an unknown argument: remove these lines and correct the number in the first line."""
import datetime
import json
import pathlib
import random
import re

import jinja2
import jinja2.nodes
import transformers
from transformers.utils import chat_template_utils

SOURCES = pathlib.Path(__file__).resolve().parent / "chat"
OUT = pathlib.Path(__file__).resolve().parent / "data" / "chat"
# Templates of our own with the constructs that the templates of the model families use.
FAMILIES = [
    "chatml", "zephyr",   # Zephyr, SmolLM, ChatML: simple; white space that trim_blocks and lstrip_blocks remove
    "llama2", "mistral",  # roles checked in turn, the system text inside the first question, errors raised
    "llama3", "llama31",  # dates, tools in the system or the first user text, builtin tools, one call at a time
    "qwen25",             # tools as lines of JSON, runs of results joined into one turn
    "qwen3",              # a search backwards for the last question, thoughts removed from older answers
    "gemma3",             # roles renamed, content as parts, an inline if inside a set
    "phi4",               # names built from roles, an else of a condition as expression
    "deepseek",           # state in a namespace, tool calls as first or later ones, thoughts cut off by split
    "granite",            # documents, controls, pieces of text put together before they are printed
    "harmony",            # gpt-oss: macros that call each other and themselves, types written as a programming language
    "marked",             # SmolLM 3: parts of the system text recognised by words, generation marked
    "odd",                # constructs of the subset that no family above uses
]
TEMPLATES = {name: (SOURCES / f"{name}.jinja").read_text(encoding="utf-8").removesuffix("\n") for name in FAMILIES}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime(2025, 1, 1, 0, 4, 5, 123456)


chat_template_utils.datetime = FixedTime


def no_constant(*_):
    raise jinja2.nodes.Impossible()


# Jinja has special rules for a slice of constants, which need not be imitated.
jinja2.nodes.Slice.as_const = no_constant

VARIABLES = {
    "n": 5, "neg": -3, "zero": 0, "f": 2.5, "big": 1e20, "s": "Hello World", "u": "Straße ΣΑΣ ñ 日本 ǆ ﬁ 😀", "e": "",
    "sp": "  a b  c\t\n", "lst": [3, 1, 2], "strs": ["b", "A", "c", "B"], "mixed": [1, "a", None, True, 2.5],
    "nested": [{"role": "user", "n": 1, "tags": ["x"]}, {"role": "tool", "n": 3}, {"role": "user", "n": 2, "ok": True}],
    "d": {"b": 1, "a": [1, 2], "items": "key", "n": None, "é\n": 'q"\'\\'}, "t": True, "fl": False, "no": None,
    "json": '{"x": 1}', "lines": "one\ntwo\r\n\n three\u2028four", "rep": "abcabcab", "num": " 42 ", "fnum": "3.75",
}

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Says how the weather is in a \"place\".",
        "parameters": {"type": "object", "properties": {
            "place": {"type": "string", "description": "Where, e.g. Zürich"},
            "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
            "days": {"type": "array", "items": {"type": "integer"}, "nullable": True},
            "exact": {"type": ["boolean", "null"], "default": False},
            "area": {"oneOf": [{"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
                                "required": ["lat"]}, {"type": "string", "description": "a name", "default": "x"}]},
            "rows": {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}}}},
            "required": ["place"]}, "return": {"type": "string"}}},
    {"type": "function", "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}}}]
DOCUMENTS = [{"title": "One", "text": "The first text.\n"}, {"title": "Zwei", "text": "Der zweite Text: <ä>&'\"."}]


def call(name, arguments, identity="abcdef123"):
    return {"type": "function", "id": identity, "function": {"name": name, "arguments": arguments}}


def conversations():
    ask = lambda text: {"role": "user", "content": text}
    say = lambda text, **more: {"role": "assistant", "content": text, **more}
    system = {"role": "system", "content": " Answer shortly.\n"}
    chats = {
        "empty": [],
        "one": [ask("Hi!")],
        "system": [system, ask("Hi!")],
        "turns": [system, ask("Hi!"), say("Hello."), ask("  How are you?\n")],
        "answered": [ask("Hi!"), say("Hello.\n"), ask("And?"), say(" Well. ")],
        "wrong_order": [ask("Hi!"), ask("Hello?")],
        "unknown_role": [ask("Hi!"), {"role": "narrator", "content": "Meanwhile"}],
        "thoughts": [ask("2+2?"), say("<think>\nsum\n</think>\n\n4"), ask("3+3?"), say("<think>\nagain\n</think>\n\n6")],
        "reasoning": [ask("2+2?"), say("4", reasoning_content="\nsum\n"), ask("3+3?"), say("6", thinking="again")],
        "no_think": [{"role": "system", "content": "Be brief. /no_think"}, ask("Hi"), say("\n\nHo")],
        "call": [system, ask("Weather?"), say(None, tool_calls=[call("get_weather", {"place": "Zürich", "unit": "c"})]),
                 {"role": "tool", "content": "{\"temp\": 3.0}", "tool_call_id": "abcdef123", "name": "get_weather"}],
        "called": [ask("Weather?"), say("", tool_calls=[call("get_weather", {"place": "Oslo"})]),
                   {"role": "tool", "content": "cold", "tool_call_id": "abcdef123"}, say("It is cold."), ask("Thanks")],
        "two_calls": [ask("Both?"), say("", tool_calls=[call("get_weather", {"place": "A"}), call("now", {}, "987654321")]),
                      {"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}],
        "text_call": [ask("Go"), say("Sure", tool_calls=[call("now", "{\"a\": 1}", "short")]), {"role": "tool", "content": "x"}],
        "thinking_call": [ask("Go"), say("", thinking="maybe", tool_calls=[call("now", {"deep": {"a": [1, None, 2.50, True]}})]),
                          {"role": "tool", "content": {"rows": [1, 2]}}, say("done")],
        "parts": [ask([{"type": "text", "text": " Look: "}, {"type": "image"}, {"type": "text", "text": "what?"}]),
                  say([{"type": "text", "text": "A cat."}])],
        "system_parts": [{"role": "system", "content": [{"type": "text", "text": "Kind."}]}, ask([{"type": "text", "text": "Hm"}])],
        "none": [ask(None)],
        "missing": [{"role": "user"}],
        "number": [ask(42)],
        "marks": [ask("<|stop|>{{ 7 }}{% if %}</think>\\n'\"<tool>"), say("{# no #}")],
        "strange": [ask("\u00a0\u2003 wide \u3000\x1c\x85"), say("\x00\x1b\ufeff\u200b"), ask("a\r\nb\rc\u2028d")],
    }
    scripts = ["Съешь же ещё этих булок", "नमस्ते दुनिया", "مرحبا بالعالم", "日本語の文章です。", "한국어 문장", "ภาษาไทย", "😀👩‍👩‍👧‍👦🇩🇪",
               "Ὀδυσσεύς ΟΔΥΣΣΕΥΣ", "שלום עולם", "İstanbul ıI ﬀ ß"]
    for i, text in enumerate(scripts):
        chats[f"script{i}"] = [ask(text), say(text[::-1].strip()), ask(f" {text}\n")]
    return chats


CHATS = conversations()
OPTIONS = {"vars": {"variables": VARIABLES}}


def render(source, chat, options):
    """Returns (text, raised). The text is None if there is an error."""
    kwargs = {**TOKENS, **options.get("variables", {})}
    try:
        texts, _ = chat_template_utils.render_jinja_template(
            conversations=[chat], chat_template=source, tools=options.get("tools"), documents=options.get("documents"),
            add_generation_prompt=options.get("add_generation_prompt", False), **kwargs)
        return texts[0], None
    except jinja2.exceptions.TemplateError as error:
        return None, str(error.message) if type(error) is jinja2.exceptions.TemplateError else None
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RuntimeError, SyntaxError):
        return None, None


def portable(text):
    """Rejects results that contain addresses, and integers beyond 64 bits."""
    if text is None:
        return True
    if " at 0x" in text or re.search(r"(?<![.\d])\d{19,}(?![.\de])", text):
        return False
    return not any(0xD800 <= ord(c) < 0xE000 for c in text)


class Writer:
    """`errors` is the share of the cases without a text that is kept."""

    def __init__(self, name, errors=1.0):
        self.name, self.lines, self.seen, self.errors, self.random = name, [], set(), errors, random.Random(5)

    def add(self, template, chat=None, options=None):
        shown = options if options is not None else {}
        key = json.dumps([template, chat, shown])
        # Formatting with % and printing generators are refused, even if the result is not used.
        if key in self.seen or re.search(r"['\"]\)* % |set ns.v = [^%]*items %", template):
            return
        self.seen.add(key)
        resolved = OPTIONS[shown] if isinstance(shown, str) else shown
        text, raised = render(TEMPLATES.get(template, template), CHATS[chat] if chat else [], resolved)
        if not portable(text) or (text is None and raised is None and self.random.random() > self.errors):
            return
        case = {"template": template}
        if chat:
            case["chat"] = chat
        if shown:
            case["options"] = shown
        case["text"] = text
        if raised is not None:
            case["raised"] = raised
        self.lines.append(json.dumps(case, ensure_ascii=False, separators=(",", ":")))

    def write(self):
        made_with = f"transformers {transformers.__version__}, jinja2 {jinja2.__version__}"
        header = json.dumps({"made_with": made_with, "cases": len(self.lines)})
        text = "\n".join([header] + self.lines) + "\n"
        (OUT / f"{self.name}.jsonl").write_text(text, encoding="utf-8", newline="")
        errors = sum('"text":null' in line for line in self.lines)
        print(self.name, len(self.lines), "cases,", errors, "errors,", len(text.encode()), "bytes")


class Expressions:
    """Makes random expressions over VARIABLES."""
    NAMES = list(VARIABLES) + ["missing", "d.a", "d['items']", "nested[0]", "nested[0].tags", "missing_too"]
    LITERALS = ["0", "1", "-2", "7", "1.5", "2.0", "''", "'a'", "\"b'c\"", "'x\\ty\\n'", "'é' 'à'", "true", "false", "none",
                "[]", "[1, 'a']", "{}", "{'k': 1, 2: 'v'}", "(1, 2)", "(1,)", "()", "'\\u00e9\\x41\\q'"]
    BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
    FILTERS = ["capitalize", "count", "d('x')", "default('x', true)", "default", "dictsort", "first", "indent", "indent(2, true)",
               "int", "int(7)", "items|list", "join", "join(', ')", "last", "length", "list", "lower", "map('upper')|list",
               "map(attribute='n')|list", "map('default', 'z')|list", "reject('string')|list", "reject|list",
               "rejectattr('n', 'gt', 1)|list", "rejectattr('ok')|list", "replace('a', 'ZZ')", "reverse|list", "reverse",
               "select('number')|list", "select|list", "select('in', [1, 'a'])|list", "selectattr('role', 'equalto', 'user')|list",
               "selectattr('n', '>', 1)|map(attribute='n')|list", "selectattr('tags', 'defined')|first", "sort", "sort(reverse=true)",
               "sort(case_sensitive=true)", "sort(attribute='n')", "string", "title", "tojson", "tojson(indent=2)",
               "tojson(ensure_ascii=true)", "tojson(separators=(',', ':'))", "tojson(indent=0)", "trim", "trim('a ')", "unique|list",
               "upper", "first|default('none')", "list|length", "string|length", "items", "join|length", "select|first"]
    TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "sequence", "iterable",
             "true", "false", "eq 5", "equalto('a')", "ne none", "lt 3", "ge 2", "gt(1)", "le 2.5", "in [1, 'a', none]",
             "not defined", "not none", "not string"]
    METHODS = ["strip()", "lstrip()", "rstrip('cd ')", "strip('H')", "split()", "split(' ')", "split('b', 1)", "split(maxsplit=1)",
               "startswith('He')", "endswith('d')", "replace('l', 'L')", "upper()", "lower()", "title()", "capitalize()", "items()",
               "keys()", "values()", "get('a')", "get('zz')", "get('zz', 7)", "items()|list", "keys()|list", "values()|list",
               "get('a')[0]"]
    SUFFIXES = ["[0]", "[-1]", "[99]", "['a']", ".a", ".n", ".role", "[1:]", "[:2]", "[::-1]", "[::2]", "[-2:]", "[1:-1]", "[5:1:-2]",
                "[:]", "['items']", ".items", "[none]", "[1.0]", "[true]", ".zz", "[0][0]", "[-100:100]", "['zz']", "[::0]", "['a':]"]

    def __init__(self, seed):
        self.random = random.Random(seed)

    def atom(self):
        return self.random.choice(self.NAMES if self.random.random() < 0.7 else self.LITERALS)

    def make(self, depth=2):
        pick = self.random.choice
        if depth == 0:
            return self.atom()
        kind = self.random.randrange(12)
        inner = self.make(depth - 1)
        if kind < 3:
            return f"({inner}) | {pick(self.FILTERS)}" if depth > 1 else f"{inner}|{pick(self.FILTERS)}"
        if kind < 5:
            return f"({inner}) {pick(self.BINARY)} {self.make(depth - 1)}"
        if kind == 5:
            return f"({inner}) is {pick(self.TESTS)}"
        if kind == 6:
            return f"({inner}).{pick(self.METHODS)}"
        if kind == 7:
            return f"({inner}){pick(self.SUFFIXES)}"
        if kind == 8:
            return f"{self.make(depth - 1)} if {inner} else {self.make(depth - 1)}"
        if kind == 9:
            return f"[{inner}, {self.make(depth - 1)}]"
        if kind == 10:
            return f"{pick(['not', '-'])} ({inner})"
        return pick([f"{{'k': {inner}}}", f"({inner}, )", f"{self.atom()} < {inner} <= {self.atom()}", f"{inner} if {self.atom()}",
                     f"{self.atom()} ~ {inner} ~ {self.atom()}", f"dict(a={inner})", f"range({inner})|list"])


def expressions():
    out = Writer("expressions", errors=0.4)
    e = Expressions(1)
    # A random part of all pairs of a value and a filter, test or method.
    for name in e.NAMES:
        for filter_ in e.FILTERS:
            if e.random.random() < 0.35:
                out.add(f"{{{{ {name}|{filter_} }}}}", options="vars")
        for test in e.TESTS:
            if e.random.random() < 0.3:
                out.add(f"{{{{ {name} is {test} }}}}", options="vars")
        for method in e.METHODS:
            if e.random.random() < 0.3:
                out.add(f"{{{{ {name}.{method} }}}}", options="vars")
        for suffix in e.SUFFIXES:
            if e.random.random() < 0.4:
                out.add(f"{{{{ {name}{suffix} }}}}", options="vars")
    for left in e.LITERALS:
        for right in e.LITERALS:
            if e.random.random() < 0.6:
                out.add(f"{{{{ {left} {e.random.choice(e.BINARY)} {right} }}}}", options="vars")
    for literal in e.LITERALS:
        out.add(f"{{{{ {literal} }}}}|{{{{ [{literal}] }}}}|{{{{ {literal} | tojson }}}}")
    for number in ["0.1", "123456789.125", "100.0", "1/3", "-0.0", "7//2", "-7//2", "-7%3", "7%-3", "9223372036854775807", "5/0",
                   "5//0", "5%0", "true+true", "-true", "3 == 3.0", "1 == true", "'a' < 'B'", "[1] < [1, 2]", "(1, 2) < (1, 3)"]:
        out.add(f"{{{{ {number} }}}}")
    while len(out.lines) < 3300:
        out.add("{{ " + e.make(e.random.choice([2, 2, 3])) + " }}", options="vars")
    out.write()


def whitespace():
    out = Writer("whitespace")
    source = random.Random(2)
    spaces = ["", "", " ", "\n", "\n\n", "  ", "\t", " \n ", "\r\n", "\u00a0", "\n    "]
    words = ["a", "b", "x y", "", "é", "{", "}", "%", "#"]
    openings, closings = ["", "", "-", "+"], ["", "", "-", "+"]

    def tag(kind, inside):
        left, right = source.choice(openings), source.choice(closings)
        if kind == "{{":
            return "{{" + left.replace("+", "") + inside + right.replace("+", "") + "}}"
        close = {"{%": "%}", "{#": "#}"}[kind]
        return kind + left + inside + right + close

    def text():
        return source.choice(spaces) + source.choice(words) + source.choice(spaces)

    def part(depth):
        kind = source.randrange(8)
        if kind == 0:
            return tag("{{", source.choice([" 1 ", "'v'", " '' ", "\n2\n"]))
        if kind == 1:
            return tag("{#", source.choice([" note ", "", " {{ no }} ", "\n"]))
        if kind == 2 and depth:
            return tag("{%", " if 1 ") + body(depth - 1) + tag("{%", " endif ")
        if kind == 3 and depth:
            return tag("{%", " for i in [1, 2] ") + body(depth - 1) + tag("{%", "endfor")
        if kind == 4:
            return tag("{%", " set q = 3 ")
        if kind == 6 and depth:
            return tag("{%", " if 0 ") + body(depth - 1) + tag("{%", " else ") + body(depth - 1) + tag("{%", "endif ")
        return text()

    def body(depth):
        return "".join(text() + part(depth) for _ in range(source.randrange(1, 4))) + text()

    while len(out.lines) < 500:
        out.add(body(1) + source.choice(["", "\n", "\n\n", "\r\n"]))
    out.write()


STATEMENTS = (SOURCES / "statements.txt").read_text(encoding="utf-8").splitlines()


def statements():
    out = Writer("statements")
    for source in STATEMENTS:
        out.add(source, options="vars")
        out.add(source.replace("%}{{", "%}\n{{").replace("%}{%", "%}\n  {%"), options="vars")
    source = random.Random(3)
    e = Expressions(4)

    def block(depth):
        pick = source.choice
        kind = source.randrange(10)
        inner = block(depth - 1) if depth else "{{ " + e.atom() + " }}"
        if kind == 0:
            return f"{{% for x in {e.atom()} %}}{inner}{{{{ {pick(['x', 'loop.index', 'loop.last', 'loop.previtem'])} }}}}{{% endfor %}}"
        if kind == 1:
            return f"{{% for x in {e.atom()} if x %}}{inner}{{% else %}}-{{% endfor %}}"
        if kind == 2:
            return f"{{% if {e.make(1)} %}}{inner}{{% elif {e.atom()} %}}E{{% else %}}L{{% endif %}}"
        if kind == 3:
            return f"{{% set {pick('xyz')} = {e.make(1)} %}}{inner}{{{{ {pick('xyz')} }}}}"
        if kind == 4:
            return f"{{% set ns = namespace(v={e.atom()}) %}}{inner}{{% set ns.v = {e.make(1)} %}}{{{{ ns.v }}}}"
        if kind == 5:
            return f"{{% macro m(x, y={e.atom()}) %}}{inner}{{{{ x }}}}{{{{ y }}}}{{% endmacro %}}{{{{ m({e.atom()}) }}}}"
        if kind == 6:
            return f"{{% set {pick('xyz')} %}}{inner}{{% endset %}}{{{{ {pick('xyz')}|upper }}}}"
        if kind == 7:
            return f"{{% filter {pick(['upper', 'trim', 'length', 'title', 'indent'])} %}}{inner}{{% endfilter %}}"
        if kind == 8:
            return f"{{% for k, v in {pick(['d.items()', 'd|dictsort', 'd|items', 'nested', 'lst'])} %}}{{{{ k }}}}{{% endfor %}}{inner}"
        return inner + block(depth - 1) if depth else inner

    while len(out.lines) < 900:
        out.add(block(source.choice([1, 2, 3])), options="vars")
    out.write()


def families():
    out = Writer("families")
    for name in TEMPLATES:
        for number, chat in enumerate(CHATS):
            if chat.startswith("script") and (number + len(name)) % 4:
                continue
            settings = [{}, {"add_generation_prompt": True}]
            if chat.startswith("script"):
                settings = settings[1:]
            elif chat in ("one", "system", "turns", "call", "called", "two_calls", "text_call", "thinking_call", "parts"):
                settings.append({"add_generation_prompt": True, "tools": "TOOLS"})
            if name in ("qwen3", "marked"):
                settings.append({"add_generation_prompt": True, "variables": {"enable_thinking": False}})
            if name == "granite":
                settings.append({"documents": "DOCUMENTS", "tools": "TOOLS", "add_generation_prompt": True,
                                 "variables": {"controls": {"citations": True}}})
            if name == "llama31":
                settings.append({"variables": {"builtin_tools": ["search", "code_interpreter", "now"], "date_string": "today"}})
                settings.append({"tools": "TOOLS", "variables": {"tools_in_user_message": False}})
            if name == "harmony":
                settings.append({"variables": {"reasoning_effort": "high", "model_identity": "I."}, "tools": "TOOLS"})
            for setting in settings:
                resolved = {**setting}
                if "tools" in setting:
                    resolved["tools"] = TOOLS
                if "documents" in setting:
                    resolved["documents"] = DOCUMENTS
                known = next((key for key, value in OPTIONS.items() if value == resolved), f"o{len(OPTIONS)}")
                OPTIONS[known] = resolved
                out.add(name, chat, known)
    out.write()


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    expressions()
    whitespace()
    statements()
    families()
    shared = {"templates": TEMPLATES, "chats": CHATS, "options": OPTIONS}
    text = json.dumps(shared, ensure_ascii=False, indent=0) + "\n"
    (OUT / "shared.json").write_text(text, encoding="utf-8", newline="")
    print("shared", len(text.encode()), "bytes")


if __name__ == "__main__":
    main()
