"""Every page is drawn without an error, in light and dark, for users and operators, and is accessible and narrow enough."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser import PHONE, eventually
from playwright.sync_api import expect
from views import NAMES, views_of


@pytest.fixture(scope="session")
def views(world):
    found = {view.name: view for view in views_of(world.alice)}
    assert list(found) == NAMES
    return found


def violations(page):
    """What axe finds, in words. It is evaluated by the debugger, which the page's policy does not bind."""
    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {one['help']}: {[node['target'] for node in one['nodes']][:3]}" for one in found]


def drawn(console, view):
    page = console.open(view.path)
    expect(page.locator(view.shows).first).to_be_visible()
    expect(page.locator(".error")).to_have_count(0)
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_drawn_for_an_operator(world, open_console, views, scheme):
    console = open_console(world.operator.key, scheme=scheme)
    for view in views.values():
        page = drawn(console, view)
        assert violations(page) == [], (view.name, scheme)
        assert not console.problems, view.name


def test_every_page_is_drawn_for_a_user(alice, views):
    for view in views.values():
        if view.operator_only:
            continue
        drawn(alice, view)
        assert not alice.problems, view.name


def test_no_page_is_wider_than_a_phone(phone, views):
    for view in views.values():
        page = drawn(phone, view)
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{view.name}: {wide} pixels wider than {PHONE['width']}"


def test_the_login_page(browser, world, open_console):
    console = open_console(world.alice.key)
    page = browser.new_context().new_page()
    page.goto(f"{world.url}/console/runs")
    field = page.get_by_label("API key")
    expect(field).to_be_visible()
    assert violations(page) == []
    field.fill("tml-wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_text("The server does not know this key.")).to_be_visible()
    field.fill(world.alice.key)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
    page.context.close()
    console.page.get_by_role("button", name="Log out").click()
    expect(console.page.get_by_label("API key")).to_be_visible()
    console.page.reload()
    expect(console.page.get_by_label("API key")).to_be_visible()


def test_the_look_is_the_systems_and_can_be_chosen(world, open_console):
    background = "getComputedStyle(document.documentElement).backgroundColor"
    light, dark = (open_console(world.alice.key, scheme=scheme).page for scheme in ("light", "dark"))
    assert light.evaluate(background) != dark.evaluate(background)
    light.get_by_role("button", name="Look: as the system. Change to dark").click()
    eventually(light, f"{background} === {dark.evaluate(background)!r}")
    light.reload()
    eventually(light, f"{background} === {dark.evaluate(background)!r}")


def test_keys_lead_to_pages(alice):
    page = alice.page
    for key, title in [("t", "Traces"), ("l", "Logs"), ("m", "Metrics"), ("r", "Runs"), ("u", "Tenants"), ("o", "Overview")]:
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page.get_by_role("heading", name=title, exact=True, level=1)).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page.locator(".table-row").first).to_be_visible()
    page.keyboard.press("/")
    search = page.locator("[data-keys=search]")
    expect(search).to_be_focused()
    search.blur()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
