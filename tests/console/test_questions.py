"""The 15 questions that operators ask most: each is answered from the overview with at most three clicks."""

import re
import secrets
import urllib.request

import pytest
from playwright.sync_api import expect

from tuft_server import MODEL, wait_until

CLICKS_MAX = 3


class Reader:
    """Somebody with a mouse, on the overview. What they see must be in view after scrolling, without a further click."""

    def __init__(self, console):
        self.page, self.clicks = console.open("/"), 0

    def click(self, locator):
        self.clicks += 1
        assert self.clicks <= CLICKS_MAX
        locator.click()

    def go(self, page):
        self.click(self.page.get_by_role("navigation", name="Pages").get_by_role("link", name=page, exact=True))
        expect(self.page.get_by_role("heading", name=page, level=1, exact=True)).to_be_visible()

    def sees(self, *texts, within="main"):
        for text in texts:
            found = self.page.locator(within).get_by_text(text).first
            found.scroll_into_view_if_needed()
            expect(found).to_be_in_viewport()

    def sees_chart(self, title):
        """A chart with this title that has data."""
        chart = self.page.get_by_role("img", name=re.compile(rf"^{re.escape(title)}[.,]")).first
        chart.scroll_into_view_if_needed()
        expect(chart).to_be_in_viewport()
        expect(chart).to_have_attribute("aria-label", re.compile("Newest values:"))

    def first_row(self, label):
        return self.page.get_by_role("grid", name=label).locator(".table-row").first


@pytest.fixture
def reader(operator):
    return Reader(operator)


def tile(reader, name):
    return reader.page.locator("a.stat, .stat a, .stat").filter(has_text=name).first


def test_01_why_was_this_request_slow(reader):
    reader.click(tile(reader, "Latency (p95)"))
    reader.click(reader.first_row("Traces"))
    reader.sees(re.compile(r"^It took .+: \d+ % of it"), re.compile(r"^(computed|waited|made tokens|was|took|read|wrote)"))


def test_02_what_failed_and_how_often(reader):
    reader.sees("Failed operations", re.compile(r"[\d.]+ % of \d+"))
    reader.click(tile(reader, "Failed operations"))
    reader.click(reader.first_row("Traces"))
    expect(reader.page.locator(".span-details .badge", has_text="failed").first).to_be_visible()
    expect(reader.page.locator(".span-status").first).to_contain_text("token")


def test_03_which_adapters_are_there_and_used(reader):
    reader.go("System")
    reader.sees("training, resident", "sampling, resident", "sampling, paged")
    reader.go("Samplers")
    expect(reader.page.get_by_role("columnheader", name="Requests")).to_be_visible()
    expect(reader.first_row("Samplers")).to_be_visible()


def test_04_does_the_engine_make_progress(reader):
    reader.sees("Everything works", re.compile("last optimizer step"))
    reader.click(reader.page.get_by_role("link", name=MODEL, exact=True).first)
    reader.sees("Newest step", "Engine busy")


def test_05_how_are_the_durations_distributed(reader):
    reader.go("Traces")
    bars = reader.page.locator(".histogram-bars button")
    wait_until(lambda: bars.count() >= 4, 20, "several bars")
    # Bars for fast and for slow ones, with their bounds in words.
    assert re.search("µs|ms", bars.first.get_attribute("aria-label"))
    reader.click(bars.nth(bars.count() - 2))
    expect(reader.first_row("Traces")).to_be_visible()


def test_06_who_uses_how_much(reader):
    reader.go("Tenants")
    reader.sees("Trained tokens", "Output tokens", "alice", "bob")
    reader.click(reader.page.get_by_role("row").get_by_text("alice", exact=True).first)
    reader.sees("Quotas of alice", "limits.runs_per_user_max")


def test_07_where_is_telemetry_sent(reader):
    reader.go("System")
    reader.click(reader.page.get_by_role("tab", name="Versions and telemetry"))
    reader.sees("Exported", re.compile("no; telemetry.enabled is false"))


def test_08_is_this_the_trace_of_my_caller(world, reader):
    trace = secrets.token_hex(16)
    request = urllib.request.Request(
        f"{world.url}/oai/api/v1/completions", method="POST",
        data=f'{{"model": "{MODEL}", "prompt": "one", "max_tokens": 2}}'.encode(),
        headers={"X-API-Key": world.alice.key, "Content-Type": "application/json",
                 "traceparent": f"00-{trace}-{secrets.token_hex(8)}-01"})
    urllib.request.urlopen(request).read()
    wait_until(lambda: world.alice.traces(limit=1, name="oai.*")[0]["trace_id"] == trace, 20, "it is kept")
    reader.go("Traces")
    newest = reader.first_row("Traces")
    expect(newest).to_contain_text("completions")
    reader.click(newest)
    expect(reader.page).to_have_url(re.compile(trace))
    reader.sees(trace[:12])


def test_09_which_request_is_this_line_about(reader):
    reader.go("Logs")
    reader.click(reader.page.get_by_text("Debug", exact=True))
    reader.click(reader.page.locator(".log-line", has_text="future.").last.locator(".log-text"))
    reader.sees("Trace", re.compile("tuft.request_id"), within=".log-detail")
    expect(reader.page.get_by_role("link", name="Its span")).to_be_visible()


def test_10_does_the_cache_help(reader):
    reader.go("System")
    reader.sees("KV cache", "used", "cached", "free")
    reader.go("Metrics")
    reader.click(reader.page.get_by_text("Sampling", exact=True).last)
    reader.sees_chart("Prompt tokens found in the prefix cache")


def test_11_is_the_server_full(reader):
    reader.sees("Waiting", "for their turn", "Nothing waits.")
    reader.click(tile(reader, "Waiting"))
    reader.sees("tuft.dispatch.waiting")
    reader.sees_chart("tuft.dispatch.waiting")


def test_12_how_does_the_training_go(reader):
    reader.go("Runs")
    reader.click(reader.first_row("Training runs").locator(".run-name"))
    reader.sees("Loss", "Gradient norm", "Tokens per second", re.compile("learning rate"))
    for title in ("Loss", "Gradient norm", "Learning rate", "Tokens per second"):
        reader.sees_chart(title)


def test_13_why_is_the_training_slow(reader):
    reader.go("Runs")
    reader.click(reader.first_row("Training runs").locator(".run-name"))
    reader.sees("Where the time went", "Forward and backward passes", "How to make it faster")
    reader.sees_chart("Seconds of each step, by what took them")


def test_14_how_well_is_the_device_used(reader):
    reader.sees("Engine busy")
    reader.go("Metrics")
    reader.sees("Utilization of the device (MFU)")
    reader.click(reader.page.get_by_text("Machine", exact=True))
    reader.sees_chart("Processors")
    reader.sees_chart("Busy share of the engine thread")


def test_15_what_does_telemetry_cost_and_lose(reader):
    reader.sees("Lost", "nothing")
    reader.click(reader.page.get_by_role("link", name="What telemetry costs and loses"))
    reader.sees_chart("Processors that telemetry uses")
    reader.sees_chart("Spans recorded")
