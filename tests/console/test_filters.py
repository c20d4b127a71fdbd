"""Every filter of every page changes what is listed and the address."""

import re
from urllib.parse import parse_qs

import pytest
from browser import eventually
from playwright.sync_api import expect

from tuft_server import MODEL, wait_until
from world import OPERATION


def param(page, name):
    # The page is asked, because `page.url` is only as new as the last call of Playwright.
    return parse_qs(page.evaluate("location.search").removeprefix("?")).get(name, [None])[0]


def rows_of(page, label):
    """The number of rows of a table, and not only of those that are drawn."""
    grid = page.get_by_role("grid", name=label)
    return int(grid.get_attribute("aria-rowcount")) - (label != "Log lines, oldest first")


def type_filter(page, text):
    page.locator("main [data-keys=search]").fill(text)
    page.keyboard.press("Enter")


def clear(page):
    while page.locator(".chip button").count():
        page.locator(".chip button").first.click()


def expected_traces(world, **filters):
    query = {"name": OPERATION, "limit": 100, "from": "-1h", **filters}
    return len(world.operator.traces(**query))


def trace_filters(world):
    """Yields what is typed, the parameters that it sets, and whether it leaves anything out."""
    alice = world.alice
    request = alice.traces(name=OPERATION, limit=1)[0]["request"]
    yield "status:error", {"status": "error"}, True
    yield "operation:sample", {"operation": "sample"}, True
    yield "operation:optim_step", {"operation": "optim_step"}, True
    yield f"user:{alice.name}", {"user": alice.name}, True
    yield f"session:{alice.session}", {"session": alice.session}, True
    yield f"run:{alice.run}", {"run": alice.run}, True
    yield f"request:{request}", {"request": request}, True
    yield "duration:>1h", {"min_duration": 3_600_000_000}, True
    yield "duration:<1h", {"max_duration": 3_600_000_000}, False
    yield "base_model:other", {"base_model": "other"}, True
    yield f"base_model:{MODEL}", {"base_model": MODEL}, False
    yield "service:other", {"service": "other"}, True
    yield "name:oai.*", {"name": "oai.*"}, True
    yield "sample_no_such_word", {"text": "sample_no_such_word"}, True


def test_traces(world, operator):
    page = operator.open("/traces")
    whole = expected_traces(world)
    assert whole > 20
    wait_until(lambda: rows_of(page, "Traces") == whole, 20, "all operations are listed")
    for typed, parameters, narrows in trace_filters(world):
        type_filter(page, typed)
        for name, value in parameters.items():
            wait_until(lambda: param(page, name) == str(value), 20, f"{typed} sets {name}")
        wanted = expected_traces(world, **parameters)
        wait_until(lambda: rows_of(page, "Traces") == wanted, 20, f"{typed} leaves {wanted} traces")
        assert (wanted < whole) == narrows, typed
        if wanted == 0:
            expect(page.get_by_text("No trace meets the filter")).to_be_visible()
        clear(page)
        wait_until(lambda: rows_of(page, "Traces") == whole, 20, f"without {typed} all are listed")


def test_which_traces(world, operator):
    page = operator.open("/traces")
    operations = rows_of(page, "Traces")
    page.get_by_text("All requests", exact=True).click()
    wait_until(lambda: rows_of(page, "Traces") > operations, 20, "requests that are no operations are listed")
    assert param(page, "of") == "requests"
    page.get_by_text("Everything", exact=True).click()
    wait_until(lambda: param(page, "of") == "all", 20, "everything is listed")


def test_durations_are_brushed_over(world, operator):
    page = operator.open("/traces")
    whole = rows_of(page, "Traces")
    bars = page.locator(".histogram-bars")
    box = bars.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 40, steps=4)
    page.mouse.up()
    wait_until(lambda: param(page, "min_duration"), 20, "the brush is in the address")
    wanted = expected_traces(world, min_duration=param(page, "min_duration"),
                             **({"max_duration": param(page, "max_duration")} if param(page, "max_duration") else {}))
    wait_until(lambda: rows_of(page, "Traces") == wanted, 20, "the list is that of the brush")
    assert 0 < wanted < whole
    page.go_back()
    wait_until(lambda: rows_of(page, "Traces") == whole, 20, "the back button takes the brush off")


@pytest.mark.parametrize("choice", ["Rate", "Errors"])
def test_the_chart_of_traces(operator, choice):
    page = operator.open("/traces")
    page.get_by_text(choice, exact=True).click()
    wait_until(lambda: param(page, "measure") == choice.lower(), 20, "the measure is in the address")
    page.get_by_label("Group by").select_option("user")
    wait_until(lambda: param(page, "by") == "user", 20, "the grouping is in the address")
    for user in ("alice", "bob"):
        expect(page.locator(".legend").get_by_text(user)).to_be_visible()


def log_filters(world):
    alice = world.alice
    trace = alice.traces(name="hf_model.forward_backward", limit=1)[0]["trace_id"]
    line = alice.observe("logs", level="debug", trace=trace, limit=5)["logs"][0]
    yield "event:checkpoint.*", {"event": "checkpoint.*"}
    yield f"user:{alice.name}", {"user": alice.name}
    yield f"session:{alice.session}", {"session": alice.session}
    yield f"run:{alice.run}", {"run": alice.run}
    yield "operation:save_weights", {"operation": "save_weights"}
    yield f"trace:{trace}", {"trace": trace}
    yield f"trace:{trace} span:{line['span_id']}", {"trace": trace, "span": line["span_id"]}
    yield "service:other", {"service": "other"}
    yield "checkpoint", {"text": "checkpoint"}


def test_logs(world, operator):
    page = operator.open("/logs?level=debug")
    for typed, parameters in log_filters(world):
        type_filter(page, typed)
        for name, value in parameters.items():
            wait_until(lambda: param(page, name) == value, 20, f"{typed} sets {name}")
        wanted = len(world.operator.observe("logs", level="debug", limit=200, **parameters)["logs"])
        if wanted == 0:
            expect(page.get_by_text("No line matches")).to_be_visible()
        else:
            wait_until(lambda: rows_of(page, "Log lines, oldest first") >= wanted, 20, f"{typed} finds {wanted} lines")
        if wanted < 200:
            wait_until(lambda: wanted == 0 or rows_of(page, "Log lines, oldest first") == wanted, 20, typed)
        clear(page)


def test_levels_of_the_log(world, operator):
    page = operator.open("/logs")
    counts = {}
    for level in ("Debug", "Info", "Warning"):
        page.get_by_text(level, exact=True).first.click()
        wait_until(lambda: param(page, "level") == (None if level == "Info" else level.lower()), 20, level)
        operator.settle()
        wanted = world.operator.observe("logs", level=level.lower(), limit=1000)["logs"]
        shown = page.locator(".log-line .log-level").first
        if wanted:
            expect(shown).to_be_visible()
        counts[level] = len(wanted)
    assert counts["Debug"] > counts["Info"] >= counts["Warning"]


def test_runs(world, operator):
    page = operator.open("/runs")
    wait_until(lambda: rows_of(page, "Training runs") == 2, 20, "both runs are listed")
    for typed, name, wanted in [("user:alice", "user", 1), ("status:running", "status", 2), ("status:lost", "status", 0),
                                (f"session:{world.bob.session}", "session", 1), ("base_model:tiny", "base_model", 2),
                                (world.alice.run[:13], "text", 1)]:
        type_filter(page, typed)
        wait_until(lambda: param(page, name), 20, f"{typed} sets {name}")
        wait_until(lambda: rows_of(page, "Training runs") == wanted, 20, f"{typed} leaves {wanted} runs")
        clear(page)
    page.get_by_role("checkbox").first.check()
    wait_until(lambda: param(page, "runs"), 20, "the chosen run is in the address")
    page.get_by_role("button", name="Log scale").click()
    wait_until(lambda: param(page, "log") == "1", 20, "the scale is in the address")
    page.get_by_text("Time", exact=True).first.click()
    wait_until(lambda: param(page, "x") == "time", 20, "the axis is in the address")


def test_samplers(world, operator):
    page = operator.open("/samplers")
    whole = rows_of(page, "Samplers")
    for typed, name in [("user:alice", "user"), (f"session:{world.bob.session}", "session"), (f"run:{world.alice.run}", "run"),
                        ("base_model:other", "base_model")]:
        type_filter(page, typed)
        wait_until(lambda: param(page, name), 20, f"{typed} sets {name}")
        wait_until(lambda: rows_of(page, "Samplers") < whole, 20, f"{typed} leaves some out")
        clear(page)
        wait_until(lambda: rows_of(page, "Samplers") == whole, 20, "all are listed")


def test_metrics(operator):
    page = operator.open("/metrics?view=catalogue")
    whole = page.locator(".catalogue-item").count()
    page.get_by_label("Search the metrics").fill("prefix cache")
    wait_until(lambda: 0 < page.locator(".catalogue-item").count() < whole, 20, "the search finds some metrics")
    assert param(page, "q") == "prefix cache"
    page.get_by_label("Search the metrics").fill("training.step.duration")
    page.locator(".catalogue-item").first.click()
    wait_until(lambda: param(page, "metric") == "tuft.training.step.duration", 20, "the metric is in the address")
    page.get_by_role("button", name="phase", exact=True).click()
    wait_until(lambda: "phase" in (param(page, "by") or ""), 20, "the grouping is in the address")
    expect(page.locator(".legend").get_by_text("backward")).to_be_visible()
    page.get_by_label("Only phase").select_option("backward")
    wait_until(lambda: param(page, "where") == "phase:backward", 20, "the condition is in the address")
    expect(page.locator(".legend").get_by_text("forward", exact=True)).to_have_count(0)
    page.get_by_label("Compare with").select_option(index=1)
    wait_until(lambda: param(page, "compare"), 20, "the comparison is in the address")


def test_tenants(operator):
    page = operator.open("/tenants")
    page.get_by_role("row").get_by_text("alice", exact=True).first.click()
    wait_until(lambda: param(page, "user") == "alice", 20, "the user is in the address")
    expect(page.get_by_role("heading", name="Quotas of alice")).to_be_visible()
    expect(page.get_by_role("heading", name="Sessions of alice")).to_be_visible()


def test_the_time_range_and_the_order_of_a_list(world, operator):
    page = operator.open("/traces")
    page.get_by_role("button", name="Duration").click()
    wait_until(lambda: param(page, "sort") == "-duration", 20, "the order is in the address")
    slowest = max(world.operator.traces(name=OPERATION, limit=100), key=lambda trace: trace["duration"])
    eventually(page, "document.querySelector('.table-row') !== null")
    page.locator(".table-row").first.click()
    expect(page).to_have_url(re.compile(slowest["trace_id"]))
    page.go_back()
    page.get_by_role("button", name="Last 1 hour").click()
    page.get_by_role("menuitemradio", name="Last 5 minutes").click()
    wait_until(lambda: param(page, "from") == "-5m", 20, "the range is in the address")
    page.keyboard.press("Escape")
    page.get_by_role("switch", name="Refresh by itself").click()
    wait_until(lambda: param(page, "live") == "0", 20, "the pause is in the address")
