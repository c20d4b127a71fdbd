"""Reads spans and log records from the files of the Collector's file exporter."""


def plain(value):
    ((kind, content),) = value.items() if value else (("stringValue", None),)
    return int(content) if kind == "intValue" else content


def attributes(pairs):
    return {pair["key"]: plain(pair["value"]) for pair in pairs or []}


class Span:
    def __init__(self, span, resource):
        self.name, self.kind, self.resource = span["name"], span.get("kind", 0), resource
        self.trace_id, self.span_id, self.parent_id = span["traceId"], span["spanId"], span.get("parentSpanId", "")
        self.attributes = attributes(span.get("attributes"))
        self.failed = span.get("status", {}).get("code") == 2
        self.start, self.end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])

    def __repr__(self):
        return f"{self.name} ({self.span_id} below {self.parent_id or 'nothing'})"


class Log:
    def __init__(self, record, resource):
        self.resource, self.event = resource, record.get("eventName", "")
        self.trace_id, self.span_id = record.get("traceId", ""), record.get("spanId", "")
        self.body = plain(record["body"]) if "body" in record else ""

    def __repr__(self):
        return f"{self.event} {self.body!r} in {self.span_id}"


def read(lines, groups, scopes, records, make):
    return [
        make(record, attributes(group.get("resource", {}).get("attributes")))
        for line in lines
        for group in line.get(groups, [])
        for scope in group.get(scopes, [])
        for record in scope.get(records, [])
    ]


def spans(lines):
    return read(lines, "resourceSpans", "scopeSpans", "spans", Span)


def logs(lines):
    return read(lines, "resourceLogs", "scopeLogs", "logRecords", Log)


def below(spans_of_trace, root):
    """Returns the root and all its descendants."""
    children, found, todo = {}, [], [root]
    for span in spans_of_trace:
        children.setdefault(span.parent_id, []).append(span)
    while todo:
        found.append(todo.pop())
        todo += children.get(found[-1].span_id, [])
    return found
