"""A store of a million spans and 100,000 log lines, and a trace of 5,000 spans: the pages stay responsive.

The records come over the intake, from many users' own programs, because it bounds what one user may send. Nothing here
is held to a time; --results=FOLDER writes the figures."""

import http.client
import json
import pathlib
import secrets
import time

import pytest
from browser import Console
from playwright.sync_api import expect
from test_filters import param, rows_of

import tuft_server
from otlp_bytes import LOGS, SPANS, logs_request, spans_request
from tuft_server import TuftServer, configuration, free_port, wait_until

SPANS_WANTED, LOGS_WANTED = 1_000_000, 100_000
OF_USER = 20_000  # what a user may send at once
TREE = 5_000
OPERATOR = "tml-operator"
USERS = {OPERATOR: "operator", **{f"tml-user-{i}": f"user-{i}" for i in range((SPANS_WANTED + LOGS_WANTED) // OF_USER + 1)}}
HOUR = 3600 * 10**9


class Large:
    def __init__(self, folder):
        self.port = free_port()
        model = tuft_server.init_model(folder / "model", "--family", "qwen3", "--size", "tiny", "--seed", "7")
        config = configuration(model, authorized_users=USERS, console={"operators": ["operator"]},
                               telemetry={"intake": {"http_port": self.port}})
        self.server = TuftServer(folder / "home", config).start()
        self.url, self.keys = self.server.url, iter(list(USERS)[1:])
        self.figures = {}

    def send(self, key, kind, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", f"/v1/{kind}", body, {"Content-Type": "application/x-protobuf", "x-api-key": key})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        connection.close()

    def ask(self, path):
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=60)
        connection.request("GET", f"/api/v1/observe/{path}", headers={"X-API-Key": OPERATOR})
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, (path, body)
        return json.loads(body)

    def kept(self, kind):
        return self.ask("system")["telemetry"]["store"][kind]

    def fill(self):
        now = time.time_ns()
        for kind, wanted, made in [(SPANS, SPANS_WANTED, spans_request), (LOGS, LOGS_WANTED, logs_request)]:
            counted = "spans" if kind == SPANS else "logs"
            before, sent, began = self.kept(counted), 0, time.monotonic()
            while sent < wanted:
                key = next(self.keys)
                for part in range(4):
                    # Each at its time in the last hour.
                    at = now - HOUR * (wanted - sent) // wanted // 2
                    self.send(key, kind, made(at, OF_USER // 4))
                    sent += OF_USER // 4
                # A full queue would drop the newest.
                wait_until(lambda: self.kept(counted) >= before + sent, 60, f"{sent} {counted} are kept")
            self.figures[f"{counted}_sent_per_second"] = round(sent / (time.monotonic() - began))
        self.key = next(self.keys)
        self.tree = secrets.token_bytes(16)
        self.send(self.key, SPANS, spans_request(time.time_ns() - 10**10, TREE, self.tree))
        wait_until(lambda: self.kept("spans") >= SPANS_WANTED + TREE, 60, "the trace is kept")
        assert self.ask("system")["telemetry"]["store"]["dropped_records"] == 0


@pytest.fixture(scope="module")
def large(tmp_path_factory, request):
    made = Large(tmp_path_factory.mktemp("large"))
    try:
        made.fill()
        yield made
    finally:
        made.server.stop()
    folder = request.config.getoption("--results")
    if folder:
        path = pathlib.Path(folder) / "console-large.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(made.figures, indent=2) + "\n")


@pytest.fixture
def window(large, browser):
    console = Console(browser, large.url, OPERATOR).login()
    yield console
    problems = console.problems
    console.close()
    assert not problems


FRAMES = """([selector, frames, step]) => new Promise((resolve) => {
    const gaps = []
    const box = document.querySelector(selector)
    let last = performance.now(), down = 1
    const tick = (now) => {
        gaps.push(now - last)
        last = now
        if (gaps.length > frames) return resolve(gaps.slice(2))
        if (box.scrollTop + box.clientHeight >= box.scrollHeight - 1) down = -1
        if (box.scrollTop <= 0) down = 1
        box.scrollTop += down * step
        requestAnimationFrame(tick)
    }
    requestAnimationFrame(tick)
})"""


def scroll(page, selector, frames=120, step=90):
    """Scrolls an element, and returns the times between the frames in milliseconds."""
    gaps = sorted(page.evaluate(FRAMES, [selector, frames, step]))
    at = [gaps[int(len(gaps) * share)] for share in (0.5, 0.95, 0.99)]
    return {"median_ms": round(at[0], 1), "p95_ms": round(at[1], 1), "p99_ms": round(at[2], 1), "max_ms": round(gaps[-1], 1)}


def timed(large, name, action):
    began = time.monotonic()
    result = action()
    large.figures[f"{name}_ms"] = round((time.monotonic() - began) * 1000)
    return result


def test_the_list_of_a_million_spans(large, window):
    def opened():
        page = window.open("/traces?of=all")
        expect(page.locator(".table-row").first).to_be_visible()
        return page

    page = timed(large, "traces_opened", opened)
    before = rows_of(page, "Traces")
    large.figures["traces_scrolled"] = scroll(page, "[role=grid]")
    wait_until(lambda: rows_of(page, "Traces") > before, 30, "older traces come in")

    def filtered():
        page.locator("main [data-keys=search]").fill("status:error user:user-7")
        page.keyboard.press("Enter")
        expect(page.locator(".table-row.failed").first).to_be_visible()
        window.settle()

    timed(large, "traces_filtered", filtered)


def test_the_overview_over_a_million_spans(large, window):
    timed(large, "overview_opened", lambda: window.open("/"))
    expect(window.page.get_by_text("Everything works")).to_be_visible()


def test_a_log_of_a_hundred_thousand_lines(large, window):
    page = timed(large, "logs_opened", lambda: window.open("/logs?level=debug"))
    expect(page.locator(".log-line").first).to_be_visible()
    loaded = rows_of(page, "Log lines, oldest first")
    large.figures["logs_scrolled"] = scroll(page, ".log-list", step=-90)
    page.locator(".log-list").focus()
    for _ in range(3):
        page.keyboard.press("Home")
    wait_until(lambda: rows_of(page, "Log lines, oldest first") > loaded, 30, "older lines come in")

    def searched():
        page.locator("main [data-keys=search]").fill("line-00077")
        page.keyboard.press("Enter")
        expect(page.locator(".log-line mark").first).to_be_visible()

    timed(large, "logs_searched", searched)


def test_a_trace_of_five_thousand_spans(large, window):
    def opened():
        page = window.open(f"/traces/{large.tree.hex()}")
        expect(page.locator(".tl-scroll")).to_be_visible()
        return page

    page = timed(large, "trace_opened", opened)
    expect(page.locator(".trace-facts")).to_contain_text("5,000")
    large.figures["trace_scrolled"] = scroll(page, ".tl-scroll")
    page.locator(".tl-scroll").press("+")
    wait_until(lambda: param(page, "zoom"), 20, "the zoom is in the address")
    page.get_by_text("Flame graph", exact=True).click()
    expect(page.get_by_text("Flame graph", exact=True)).to_have_attribute("aria-pressed", "true")
    page.locator(".tl-scroll").press("0")
    wait_until(lambda: not param(page, "zoom"), 20, "the whole trace is shown")
    page.get_by_text("Table", exact=True).click()
    large.figures["span_table_scrolled"] = scroll(page, "[role=grid]")
