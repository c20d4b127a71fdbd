"""OTLP requests with many records, written by hand: a message class for each of a million spans would take minutes."""

import os
import struct

SPANS, LOGS = "traces", "logs"
CHILDREN = 4


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number, content):
    """A field with a length, such as a string or a message."""
    data = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(data)) + data


def fixed64(number, value):
    return varint(number << 3 | 1) + struct.pack("<Q", value)


def text_attribute(key, value):
    return field(1, key) + field(2, field(1, value))


RESOURCE = field(1, field(1, text_attribute("service.name", "training-loop")))
NAMES = ["loop.step", "loop.batch", "loop.tokenize", "loop.wait", "loop.log"]


def span(trace, number, parent, start, duration, failed):
    parts = [field(1, trace), field(2, struct.pack(">Q", number))]
    if parent:
        parts.append(field(4, struct.pack(">Q", parent)))
    parts += [field(5, NAMES[number % len(NAMES)]), b"\x30\x01", fixed64(7, start), fixed64(8, start + duration)]
    if failed:
        parts.append(field(15, field(2, "out of data") + b"\x18\x02"))
    return field(2, b"".join(parts))


def spans_request(start, count, trace=None):
    """`count` spans in traces of ten, or all in one trace, in which each span has some children."""
    spans = []
    for i in range(count):
        if trace is None and i % 10 == 0:
            own = os.urandom(16)
        place = i if trace else i % 10
        parent = (place - 1) // CHILDREN + 1 if place else 0
        at = start + (0 if trace else i // 10 * 10_000) + place * 50_000
        duration = (count if trace else 12) * 100_000 - place * 60_000
        spans.append(span(trace or own, place + 1, parent, at, duration, trace is None and i % 500 == 0))
    return field(1, RESOURCE + field(2, b"".join(spans)))


def logs_request(start, count):
    records = []
    for i in range(count):
        level = 17 if i % 1000 == 999 else 9
        body = field(5, field(1, f"line-{i:05d} of a training loop that says what it does"))
        records.append(field(2, fixed64(1, start + i * 1000) + b"\x10" + varint(level) + body))
    return field(1, RESOURCE + field(2, b"".join(records)))
