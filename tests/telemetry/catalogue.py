#!/usr/bin/env python3
"""Makes the tables of spans, log events and attribute keys in docs/telemetry.md from the sources.

  catalogue.py --check     fails if a name is missing on the page, or if the page has a name that no longer exists
  catalogue.py --update    writes the tables; keeps the texts of the last column, which people write
  catalogue.py --update --seen FILE...   also uses the attributes in files of `protocol: file`

A name is found where it is passed to start_span() or a log function, in a table of names, or as a stage of request
tracing."""
import argparse
import collections
import itertools
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/telemetry.md"
GOLDEN_SPANS = ROOT / "tests/telemetry/golden_spans.txt"
# The library itself, which gets names as arguments.
LIBRARY = {"src/telemetry/log.h", "src/telemetry/log/log.cc", "src/telemetry/trace.h", "src/telemetry/record/trace.cc",
           "src/telemetry/traced.h"}
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
DOTTED = re.compile(r"^[a-z][a-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)+$")
LOG_CALL = re.compile(r"\blog(_debug|_info|_warning|_error)?\s*\(")
OPERATION_NAMES = re.compile(r'\{\s*"(hf_model\.\w+)",\s*"([\w.]+)",\s*"([\w.]+)",\s*"([\w.]+)"(,\s*(?:/\*\w+=\*/)?true)?')
SPAN_NAMES = re.compile(r"span_names\s*=\s*\{([^}]*)\}")
# Functions that pass a name to start_span().
PASSED_ON = re.compile(r'\bbegin_call\(\s*"([\w.]+)"')
# Names that contain an id.
RENAMED = {"Req": "{role} Req {rid}", "Bootstrap Room": "Bootstrap Room 0x{room}", "thread": "{thread}"}
CLIENT_EVENT = re.compile(r'"(client\.\w+)"')
STAGE = re.compile(r"\bTraceSpanName::([A-Z]+)")
ATTRIBUTE = re.compile(r'(?:\{|set_attribute\(\s*)"([a-z_]+(?:\.[a-z_0-9]+)+)"\s*,')
SHARE_KEYS = ["tuft.session_id", "tuft.training_run_id", "tuft.sampling_session_id", "tuft.request_id",
              "tuft.operation_type", "tuft.base_model", "tuft.lora_rank", "tuft.backward", "tuft.seq_id"]
# Keys that the library sets.
LIBRARY_KEYS = {"error.type", "rid", "thread_label", "host_id", "pid", "tp_rank", "dp_rank"}
# Keys of the configuration and of the protocol that begin like the name of a span.
OTHER_NAMES = {f"persistence.{key}" for key in ("mode", "namespace", "redis_url", "lease_seconds", "advertise")}
SHARED = "share keys"
TODO = "TODO: say what it is"


def without_comments(text):
    return re.sub(r"(?m)//[^\n\"]*$", "", text)


def sources():
    for path in sorted(ROOT.glob("src/**/*")):
        name = path.relative_to(ROOT).as_posix()
        if path.suffix not in (".cc", ".h") or "/tests/" in name or "/testing/" in name or name in LIBRARY:
            continue
        yield name.removeprefix("src/"), without_comments(path.read_text())


def arguments(text, start):
    """Returns the arguments of the call whose bracket opens at `start`, split at the outermost commas."""
    parts, depth, at, begin = [], 0, start, start + 1
    while at < len(text):
        c = text[at]
        if c == '"':
            at = STRING.match(text, at).end() - 1
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth == 0:
                parts.append(text[begin:at])
                return parts
        elif c == "," and depth == 1:
            parts.append(text[begin:at])
            begin = at + 1
        at += 1
    return parts


class Found:
    """Names, and what the sources say about them."""

    def __init__(self):
        self.files = collections.defaultdict(set)
        self.kinds = collections.defaultdict(set)
        self.keys = collections.defaultdict(set)

    def add(self, name, file, kinds=(), keys=()):
        self.files[name].add(file)
        self.kinds[name].update(kinds)
        self.keys[name].update(keys)


def keys_in(code):
    """Returns the keys that a call sets itself. Later calls may set more on a span."""
    keys = set(ATTRIBUTE.findall(code))
    return keys | {SHARED} if re.search(r"KeyAttributes|share_keys|keys_?\)", code) else keys


def scan_spans(name, text, spans):
    for call in re.finditer(r"\bstart_span\s*\(", text):
        given = arguments(text, call.end() - 1)
        kind = re.search(r"SpanKind::k(\w+)", " ".join(given[1:]))
        for literal in STRING.findall(given[0] if given else ""):
            if literal:
                spans.add(RENAMED.get(literal, literal), name, [kind.group(1).lower() if kind else "internal"],
                          keys_in("".join(given[1:])))
    for names in OPERATION_NAMES.finditer(text):
        spans.add(names.group(1), name, ["internal"])
    for literal in PASSED_ON.findall(text):
        spans.add(literal, name, ["internal"])
    for names in SPAN_NAMES.finditer(text):
        for literal in STRING.findall(names.group(1)):
            spans.add(literal, name, ["client"])
    if not name.startswith("telemetry/"):
        for stage in STAGE.findall(text):
            spans.add(stage, name, ["internal"])
    if name == "api/routing/request_telemetry.cc":
        spans.add("{METHOD} {route}", name, ["server"])


def scan_events(name, text, events):
    for call in LOG_CALL.finditer(text):
        given = arguments(text, call.end() - 1)
        if call.group(1):
            severities, event = [call.group(1)[1:]], given[:1]
        else:
            severities, event = [word.lower() for word in re.findall(r"Severity::k(\w+)", given[0])], given[1:2]
            # For a variable, its possible values are above the call.
            if not severities and given[0].strip() == "severity":
                severities = sorted({w.lower() for w in re.findall(r"Severity::k(\w+)", text[:call.start()])})
        for literal in STRING.findall(event[0] if event else ""):
            if DOTTED.match(literal):
                events.add(literal, name, severities, keys_in(",".join(given[1:])))
    for names in OPERATION_NAMES.finditer(text):
        events.add(names.group(2), name, ["debug"])
        events.add(names.group(3), name, ["info" if names.group(5) else "debug"])
        events.add(names.group(4), name, ["warning", "error"])
    if name == "api/handlers/client_telemetry.cc":
        for literal in CLIENT_EVENT.findall(text):
            events.add(literal, name, ["debug", "info", "warning", "error"])


def scan():
    spans, events, attributes = Found(), Found(), Found()
    labels = metric_labels()
    for name, text in sources():
        scan_spans(name, text, spans)
        scan_events(name, text, events)
        for key in ATTRIBUTE.findall(text):
            if key not in labels and not name.startswith(("telemetry/", "engine/checkpoint/")):
                attributes.add(key, name)
    for name in [*spans.files, *events.files]:
        attributes.files.pop(name, None)
    return spans, events, attributes


def metric_labels():
    """Returns keys that only metrics have."""
    text = "".join(path.read_text() for folder in ("src/metrics", "src/telemetry/instruments")
                   for path in (ROOT / folder).glob("*.h"))
    return {key for block in re.findall(r"\.labels = \{([^}]*)\}", text) for key in STRING.findall(block)} - {
        "error.type", "gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "http.request.method", "http.route", "http.response.status_code",
        "url.scheme", "db.system.name", "db.operation.name"}


def marks(table):
    return f"<!-- {table}: begin -->\n", f"<!-- {table}: end -->"


def read_rows(page, table):
    """Returns the cells of each name's row in the page's table."""
    begin, end = marks(table)
    if begin not in page or end not in page:
        sys.exit(f"{PAGE.relative_to(ROOT)} lacks the marks {begin.strip()} and {end}")
    rows = {}
    for line in page.split(begin)[1].split(end)[0].splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if line.startswith("| `"):
            rows[cells[0].strip("| ").strip("`")] = cells
    return rows


def keys_text(keys):
    shared = [SHARED] if keys & {SHARED, *SHARE_KEYS} else []
    return " ".join(shared + [f"`{key}`" for key in sorted(keys - {SHARED, *SHARE_KEYS})])


def keys_of(cell):
    return set(re.findall(r"`([^`]+)`", cell)) | ({SHARED} if SHARED in cell else set())


def make_table(head, found, old, seen, real_keys):
    """Makes a row for each name from the sources, the exports, and those keys of its old row that still exist."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name in sorted(found.files):
        before = old.get(name, [""] * len(head))
        cells = [f"`{name}`"]
        if len(head) == 5:
            keys = (keys_of(before[2]) | seen[name]) & real_keys | found.keys[name]
            cells += [", ".join(sorted(found.kinds[name])), keys_text(keys)]
        lines.append("| " + " | ".join(cells + [" ".join(sorted(found.files[name])), before[-1] or TODO]) + " |")
    return "\n".join(lines) + "\n"


def read_seen(files):
    """Returns the attribute keys of each span and event in files of OTLP JSON lines."""
    seen = collections.defaultdict(set)
    for file in files:
        for line in pathlib.Path(file).read_text().splitlines():
            data = json.loads(line)
            for resource in data.get("resourceSpans", []):
                for scope in resource["scopeSpans"]:
                    for span in scope["spans"]:
                        name = "{METHOD} {route}" if span.get("kind") in (2, "SPAN_KIND_SERVER") else span["name"]
                        seen[name].update(a["key"] for a in span.get("attributes", []))
            for resource in data.get("resourceLogs", []):
                for scope in resource["scopeLogs"]:
                    for record in scope["logRecords"]:
                        keys = {a["key"] for a in record.get("attributes", [])}
                        seen[record.get("eventName", "")].update(
                            key for key in keys if not key.startswith("code.") and key != "event.name")
    return seen


def render(page, seen):
    spans, events, attributes = scan()
    real_keys = {SHARED, *SHARE_KEYS, *attributes.files, *LIBRARY_KEYS}
    tables = {"spans": (["span", "kind", "attributes", "recorded in", "what"], spans),
              "events": (["event", "severity", "attributes", "recorded in", "when"], events),
              "attributes": (["attribute", "set in", "what"], attributes)}
    for table, (head, found) in tables.items():
        begin, end = marks(table)
        body = make_table(head, found, read_rows(page, table), seen, real_keys)
        page = page.split(begin)[0] + begin + body + end + page.split(end, 1)[1]
    return page


def quotes_gone(page):
    """Returns errors for code on the page that its example file no longer contains."""
    found = []
    for file, code in re.findall(r"<!-- from (\S+) -->\n```cpp\n(.*?)```", page, re.S):
        lines = [line.strip() for line in (ROOT / file).read_text().splitlines()]
        quoted = [line.strip() for line in code.splitlines()]
        if not any(lines[at:at + len(quoted)] == quoted for at in range(len(lines))):
            found.append(f"{file} does not contain what the page quotes from it: {quoted[0]}")
    return found


def pages():
    """Yields the documents in which people read names of spans."""
    for path in [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]:
        yield path.relative_to(ROOT).as_posix(), path.read_text()


def names_gone(page):
    """Returns errors for names of the documents that look like a span's and are neither a span's nor anything else's."""
    known = {name for table in ("spans", "events", "attributes") for name in read_rows(page, table)}
    known |= set(re.findall(r"^\| `([\w.]+)`<br>", page, re.M))  # metrics
    families = {name.split(".")[0] for name in read_rows(page, "spans") if DOTTED.match(name)}
    word = re.compile(r"`((?:%s)\.[a-z_]+)`" % "|".join(sorted(families)))
    return [f"{file} names a span that does not exist: {name}" for file, text in pages() for name in word.findall(text)
            if name not in known and name not in OTHER_NAMES]


def problems(page):
    found = quotes_gone(page) + names_gone(page)
    fresh = render(page, read_seen([]))
    for old, new in itertools.zip_longest(page.splitlines(), fresh.splitlines()):
        if old != new:
            found.append(f"the tables are not what the sources say, from this line on: {new}")
            break
    found += [f"nobody has said what this is: {line}" for line in fresh.splitlines() if TODO in line]
    known = read_rows(fresh, "spans")
    for name in GOLDEN_SPANS.read_text().split("\n") if GOLDEN_SPANS.exists() else []:
        if name and name not in known and not re.match(r"^[A-Z]+ /|.*\(host:\* \| pid:\*\)$", name):
            found.append(f"{GOLDEN_SPANS.name} has a span that no source is seen to start: {name}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--seen", nargs="*", default=[])
    options = parser.parse_args()
    if options.update:
        PAGE.write_text(render(PAGE.read_text(), read_seen(options.seen)))
    wrong = problems(PAGE.read_text())
    for line in wrong:
        print(line)
    if wrong:
        print("to fix it: run tests/telemetry/catalogue.py --update, then write the last column in docs/telemetry.md")
    return 1 if wrong and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
