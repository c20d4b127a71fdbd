"""A page shows what happens without being loaded again, and stands still when it is paused."""

import json
import urllib.request

import pytest
from browser import Console
from playwright.sync_api import expect
from test_filters import rows_of

from tuft_server import wait_until
from world import OPERATION

MARK = "window.neverLoadedAgain"


@pytest.fixture
def watched(alice):
    """A page with a mark that loading it again would remove."""

    def watch(path):
        page = alice.open(path)
        page.evaluate(f"{MARK} = true")
        return page

    yield watch
    assert alice.page.evaluate(MARK) is True


def test_a_new_trace_appears(world, watched):
    page = watched("/traces?operation=optim_step")
    before = rows_of(page, "Traces")
    world.alice.step()
    wait_until(lambda: rows_of(page, "Traces") == before + 1, 20, "the new step is listed")


def test_a_run_goes_on(world, watched):
    page = watched(f"/runs/{world.alice.run}")
    steps = world.alice.observe(f"runs/{world.alice.run}")["steps"]
    figure = page.locator(".run-figures .stat", has_text="learning rate")
    expect(figure).to_contain_text(str(steps))
    world.alice.step()
    expect(figure).to_contain_text(str(steps + 1))


def test_the_log_is_followed(world, watched):
    page = watched("/logs?level=debug")
    expect(page.locator(".log-line").first).to_be_visible()
    world.alice.complete(model="no-such-model-for-the-log")
    newest = world.alice.observe("logs", level="debug", limit=1)["logs"][0]
    line = page.locator(".log-line", has_text=newest["body"]).last
    expect(line).to_be_in_viewport()


def test_the_overview_counts(world, watched):
    page = watched("/")
    line = page.locator(".health, main").first
    sessions = world.alice.observe("overview")["sessions"]
    expect(line).to_contain_text(f"{sessions} sessions")
    world.alice.fail()
    expect(line).to_contain_text(f"{sessions + 1} sessions")


def test_a_paused_page_stands_still(world, watched):
    page = watched("/traces?operation=optim_step")
    page.get_by_role("switch", name="Refresh by itself").click()
    expect(page.get_by_role("switch", name="Refresh by itself")).to_have_attribute("aria-checked", "false")
    before = rows_of(page, "Traces")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    world.alice.step()
    wait_until(lambda: len(world.alice.traces(name=OPERATION, operation="optim_step")) == before + 1, 20, "it is kept")
    assert rows_of(page, "Traces") == before
    assert not [url for url in asked if "/observe/traces" in url]
    page.get_by_role("switch", name="Refresh by itself").click()
    wait_until(lambda: rows_of(page, "Traces") == before + 1, 20, "the page goes on")


def test_who_is_signed_out_by_a_later_login_is_told_why(browser, world):
    window = Console(browser, world.url, world.bob.key).login()
    page = window.open("/")
    for _ in range(16):
        request = urllib.request.Request(f"{world.url}/console/login", json.dumps({"key": world.bob.key}).encode(),
                                         {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=20).close()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("you were signed out because you logged in elsewhere")
    page.get_by_label("API key").fill(world.bob.key)
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("#main")).to_be_visible()
    expect(page.get_by_text("you were signed out")).to_have_count(0)
    window.close()
