"""The metrics of the catalogue in docs/telemetry.md as an OTLP export, and their names in Prometheus."""

import json
import pathlib
import re
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
JOB = "catalogue"
CUMULATIVE = 2  # AggregationTemporality of OTLP


def rows():
    """Returns (name, kind, unit) of every instrument."""
    page = (ROOT / "docs/telemetry.md").read_text()
    tables = page.partition("<!-- instruments: begin -->")[2].partition("<!-- instruments: end -->")[0]
    return [
        (name, kind, unit)
        for name, kind, unit in re.findall(r"^\| `([^`]+)`<br>`[^`]+` \| (\w+)[^|]*\| ([^|]*?) \|", tables, re.MULTILINE)
    ]


def expected():
    """Returns each metric's name in Prometheus and the names of its labels, as GET /metrics shows them."""
    lines = (ROOT / "tests/telemetry/golden_exposition_names.txt").read_text().splitlines()
    return {line.split()[0]: (line.split()[2], set(line.split()[3:])) for line in lines}


def labels_of(page):
    found = re.findall(r"^\| `([^`]+)`<br>`[^`]+` \|[^|]*\|[^|]*\| ([^|]*?) \|", page, re.MULTILINE)
    return {name: re.findall(r"`([^`]+)`", labels) for name, labels in found}


def push(prometheus):
    """Sends one point of every instrument, with all its labels, by OTLP over HTTP."""
    now = time.time_ns()
    labels = labels_of((ROOT / "docs/telemetry.md").read_text())
    metrics = [metric(name, kind, unit, labels[name], now) for name, kind, unit in rows()]
    resource = {"attributes": [attribute("service.name", JOB), attribute("service.instance.id", "one")]}
    body = {"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"scope": {}, "metrics": metrics}]}]}
    request = urllib.request.Request(
        prometheus.otlp + "/v1/metrics",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


def attribute(key, value):
    return {"key": key, "value": {"stringValue": value}}


def metric(name, kind, unit, labels, now):
    point = {
        "startTimeUnixNano": now,
        "timeUnixNano": now,
        "attributes": [attribute(label, "x") for label in labels],
    }
    if kind == "Histogram":
        point |= {"count": 1, "sum": 1, "explicitBounds": [1], "bucketCounts": [1, 0]}
        data = {"histogram": {"aggregationTemporality": CUMULATIVE, "dataPoints": [point]}}
    elif kind.endswith("Gauge"):
        data = {"gauge": {"dataPoints": [point | {"asDouble": 1}]}}
    else:
        monotonic = kind in ("Counter", "ObservableCounter")
        points = {"aggregationTemporality": CUMULATIVE, "isMonotonic": monotonic, "dataPoints": [point | {"asInt": 1}]}
        data = {"sum": points}
    return {"name": name, "unit": unit, **data}
