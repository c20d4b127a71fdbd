"""Checks the files of deploy/signoz against what SigNoz requires, and against the existing metrics and span keys.

What SigNoz requires is our reading of its sources (v0.138.0: pkg/types/dashboardtypes, pkg/types/savedviewtypes and
pkg/types/querybuildertypes for the format v6 and the views; v0.129.0 for the format v5)."""

import json
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIGNOZ = ROOT / "deploy/signoz"
TELEMETRY = (ROOT / "docs/telemetry.md").read_text()
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
PANEL_KEY = re.compile(r"[A-Za-z0-9._-]{1,75}")
SPACE_AGGREGATIONS = {"sum", "avg", "min", "max", "count", "p50", "p75", "p90", "p95", "p99"}
TIME_AGGREGATIONS = {"latest", "sum", "avg", "min", "max", "count", "count_distinct", "rate", "increase"}
COLUMNS = 12
RESERVED_TAGS = {"name", "description", "created_at", "updated_at", "created_by", "locked", "source"}
OPTIONAL = {"filter", "legend", "limit", "order", "selectFields", "groupBy", "aggregations"}


def read(name):
    return json.loads((SIGNOZ / "generated" / name).read_text())


def catalogue():
    """Returns the kind and the labels of each metric in docs/telemetry.md."""
    rows = re.findall(r"^\| `([\w.]+)`<br>`\w+` \| (\w+)[^|]* \| [^|]* \| ([^|]*) \|", TELEMETRY, re.MULTILINE)
    return {name: (kind, set(re.findall(r"`([\w.]+)`", labels))) for name, kind, labels in rows}


KNOWN = catalogue()


def check_metric(aggregation, labels):
    """The aggregation must suit the metric's kind, and the metric must have the labels."""
    name, space, time = (aggregation[key] for key in ("metricName", "spaceAggregation", "timeAggregation"))
    assert space in SPACE_AGGREGATIONS and time in TIME_AGGREGATIONS, aggregation
    series, _, part = name.rpartition(".")
    if part in ("bucket", "count", "sum"):  # SigNoz stores a histogram as these
        kind, known = KNOWN[series]
        assert kind == "Histogram", name
        assert space.startswith("p") if part == "bucket" else time == "rate", name
    else:
        kind, known = KNOWN[name]
        assert time == ("rate" if kind.removeprefix("Observable") == "Counter" else "latest"), name
        assert kind != "Histogram", f"{name} needs .bucket, .count or .sum"
    assert set(labels) <= known, f"{name} has no label {set(labels) - known}"


def check_places(items):
    """items: (x, y, width, height). They must be inside the grid and apart."""
    taken = set()
    for x, y, width, height in items:
        cells = {(column, row) for column in range(x, x + width) for row in range(y, y + height)}
        assert width > 0 and height > 0 and x + width <= COLUMNS and not cells & taken
        taken |= cells


def test_the_files_belong_to_their_source():
    checked = subprocess.run([sys.executable, SIGNOZ / "dashboards.py", "--check"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_the_dashboard_v6_is_one_that_signoz_takes():
    board = read("dashboard-v6.json")
    assert board.keys() == {"schemaVersion", "name", "tags", "spec"} and board["schemaVersion"] == "v6"
    assert DNS_LABEL.fullmatch(board["name"])
    assert all(tag.keys() == {"key", "value"} and tag["key"] not in RESERVED_TAGS for tag in board["tags"])
    spec = board["spec"]
    assert spec.keys() == {"display", "variables", "panels", "layouts"} and spec["variables"] == []
    assert spec["panels"].keys() == {
        item["content"]["$ref"].removeprefix("#/spec/panels/")
        for one in spec["layouts"]
        for item in one["spec"]["items"]
    }
    for layout in spec["layouts"]:
        assert layout["kind"] == "Grid" and layout["spec"]["display"]["title"]
        check_places([(one["x"], one["y"], one["width"], one["height"]) for one in layout["spec"]["items"]])


@pytest.mark.parametrize("key, panel", read("dashboard-v6.json")["spec"]["panels"].items())
def test_a_panel_v6_is_one_that_signoz_takes(key, panel):
    assert PANEL_KEY.fullmatch(key) and panel["kind"] == "Panel"
    assert panel["spec"].keys() == {"display", "plugin", "queries"}
    assert 0 < len(panel["spec"]["display"]["name"]) <= 128
    assert panel["spec"]["plugin"]["kind"] == "signoz/TimeSeriesPanel"
    assert panel["spec"]["plugin"]["spec"].keys() == {"formatting", "thresholds"}
    (query,) = panel["spec"]["queries"]  # SigNoz takes exactly one
    assert query["kind"] == "time_series" and query["spec"]["plugin"]["kind"] == "signoz/BuilderQuery"
    check_query(query["spec"]["plugin"]["spec"], "metrics")


def check_query(query, signal):
    assert query["signal"] == signal and query["name"] == "A" and query.keys() <= {"name", "signal"} | OPTIONAL
    for field in query.get("groupBy", []) + query.get("selectFields", []):
        assert field.keys() == {"name", "signal", "fieldContext", "fieldDataType"} and field["signal"] == signal
        assert field["fieldContext"] in ("attribute", "resource", "span")
        assert field["fieldDataType"] in ("string", "number")
    if signal == "metrics":
        (aggregation,) = query["aggregations"]
        check_metric(aggregation, [field["name"] for field in query["groupBy"]])


def test_the_dashboard_v5_has_the_panels_of_v6():
    old, new = read("dashboard-v5.json"), read("dashboard-v6.json")
    assert old["version"] == "v5" and old["title"] == new["spec"]["display"]["name"]
    assert {one["id"] for one in old["widgets"]} == {one["i"] for one in old["layout"]}
    check_places([(one["x"], one["y"], one["w"], one["h"]) for one in old["layout"]])
    panels = {one["id"]: one for one in old["widgets"] if one["panelTypes"] != "row"}
    assert panels.keys() == new["spec"]["panels"].keys()
    for key, panel in panels.items():
        (old_query,) = panel["query"]["builder"]["queryData"]
        query = new["spec"]["panels"][key]["spec"]["queries"][0]["spec"]["plugin"]["spec"]
        assert panel["title"] == new["spec"]["panels"][key]["spec"]["display"]["name"]
        assert old_query["queryName"] == old_query["expression"] == query["name"]
        assert old_query["dataSource"] == query["signal"] and old_query["aggregations"] == query["aggregations"]
        assert [one["key"] for one in old_query["groupBy"]] == [one["name"] for one in query["groupBy"]]
        assert old_query["filter"]["expression"] == query.get("filter", {}).get("expression", "")


def test_the_two_panels_of_the_walkthrough_are_there():
    panels = read("dashboard-v6.json")["spec"]["panels"].values()
    found = {}
    for panel in panels:
        query = panel["spec"]["queries"][0]["spec"]["plugin"]["spec"]
        (aggregation,) = query["aggregations"]
        found[aggregation["metricName"]] = aggregation, [one["name"] for one in query["groupBy"]]
    throughput, by = found["tuft.training.tokens_per_second.bucket"]
    assert throughput["spaceAggregation"] == "p50" and by == ["base_model"]
    requests, by = found["tuft.sampling.requests"]
    assert requests["timeAggregation"] == "rate" and by == ["base_model"]


VIEWS = {
    "view-session.json": "tuft.session_id",
    "view-training-run.json": "tuft.training_run_id",
    "view-sampling-session.json": "tuft.sampling_session_id",
}


@pytest.mark.parametrize("name, key", VIEWS.items())
def test_a_view_is_one_that_signoz_takes_and_searches_by_its_key(name, key):
    view = read(name)
    assert view.keys() == {"name", "source", "schemaVersion", "spec"}
    assert (view["source"], view["schemaVersion"]) == ("traces", "v2") and DNS_LABEL.fullmatch(view["name"])
    spec = view["spec"]
    assert spec.keys() == {"displayName", "panelType", "requestType", "queries", "selectedFields", "display"}
    assert (spec["panelType"], spec["requestType"]) == ("list", "raw") and spec["displayName"]
    assert spec["display"].keys() == {"maxLines", "fontSize", "format", "color"}
    (query,) = spec["queries"]
    assert query["type"] == "builder_query"
    check_query(query["spec"], "traces")
    assert query["spec"]["filter"]["expression"] == f"{key} EXISTS"
    assert spec["selectedFields"] == query["spec"]["selectFields"]
    own = {one["name"] for one in spec["selectedFields"] if one["name"].startswith("tuft.")}
    assert key in own and all(f"`{one}`" in TELEMETRY for one in own)


def test_the_page_names_every_file():
    page = (ROOT / "docs/signoz.md").read_text()
    for path in (SIGNOZ / "generated").glob("*.json"):
        assert path.name in page, f"docs/signoz.md does not mention {path.name}"
