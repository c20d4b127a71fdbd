"""The address of a view shows the same to the next reader, in another browser, after the login."""

import contextlib
import re
from urllib.parse import quote

from browser import Console
from playwright.sync_api import expect

from tuft_server import wait_until

# What changes by itself: how long ago something was.
AGES = re.compile(r"\d[\d.]* (?:µs|ms|s|min|h)(?: \d+ (?:s|min))?(?: ago)?|just now|now")


def words(page):
    """The text of the page and what is selected and pressed in it, without ages."""
    chosen = page.evaluate("""[...document.querySelectorAll(
        "main [aria-pressed=true], main [aria-checked=true], main [aria-selected=true], main [aria-current]")]
        .map((one) => one.textContent)""")
    return AGES.sub("…", page.locator("main").inner_text()), AGES.sub("…", "|".join(chosen))


def addresses(world):
    start = int(world.alice.traces(run=world.alice.run, limit=1)[0]["start"])
    time = f"from={start - 3_600_000_000}&until={start + 1_000_000}"
    run, trace = quote(world.alice.run, safe=""), world.alice.trace
    spans = world.alice.observe(f"traces/{trace}")["spans"]
    span = next(one["span_id"] for one in spans if one["name"] == "hf_model.forward_backward")
    yield f"/?{time}"
    yield f"/traces?{time}&operation=sample&sort=-duration&measure=rate&by=user"
    yield f"/traces?{time}&of=requests&min_duration=1000&user=alice"
    yield f"/traces/{trace}?span={span}"
    yield f"/traces/{trace}?view=flame&span={span}&panel=logs"
    yield f"/traces/{trace}?view=table&q=engine"
    yield f"/logs?{time}&level=debug&text=checkpoint"
    yield f"/logs?trace={trace}"
    yield f"/metrics?{time}&board=sampling"
    yield f"/metrics?{time}&view=catalogue&metric=tuft.training.step.duration&fn=p50&by=phase"
    yield f"/runs?runs={run}&x=time&log=1&live=0"
    yield f"/runs/{run}?live=0"
    yield f"/samplers?run={run}&live=0"
    yield f"/tenants?{time}&user=alice&live=0"
    yield "/system?tab=limits&live=0"
    yield "/system?tab=configuration&q=operators&live=0"


def open_as_somebody_else(browser, world, path):
    """Opens an address without a session, and logs in there."""
    console = Console(browser, world.url, world.operator.key)
    console.page.goto(f"{world.url}/console{path}")
    console.page.get_by_label("API key").fill(world.operator.key)
    console.page.keyboard.press("Enter")
    console.settle()
    return console


def test_an_address_shows_the_same_to_the_next_reader(browser, world, operator):
    for path in addresses(world):
        other = open_as_somebody_else(browser, world, path)
        with contextlib.suppress(AssertionError):
            # A view without a life of its own is as old as its opening.
            wait_until(lambda: words(operator.open(path)) == words(other.open(path)), 30, path)
        assert words(operator.page) == words(other.page), path
        assert len(words(operator.page)[0]) > 100, path
        assert not other.problems
        other.close()


def test_what_is_chosen_with_the_mouse_is_in_the_address(browser, world, operator):
    page = operator.open(f"/traces/{world.alice.trace}")
    page.locator(".why-parts button").first.click()
    expect(page.locator(".span-name")).to_be_visible()
    page.get_by_text("Flame graph", exact=True).click()
    other = open_as_somebody_else(browser, world, page.url.removeprefix(f"{world.url}/console"))
    expect(other.page.locator(".span-name")).to_have_text(page.locator(".span-name").inner_text())
    expect(other.page.get_by_text("Flame graph", exact=True)).to_have_attribute("aria-pressed", "true")
    other.close()
