"""Two users attack each other over every page: nobody sees anything of the other. An operator sees both."""

import json
import urllib.error
import urllib.request

import pytest
from browser import Console
from playwright.sync_api import Error, expect
from views import views_of

LISTS = ["/", "/traces?of=requests", "/logs?level=debug", "/metrics", "/runs", "/samplers", "/tenants", "/system", "/playground"]


def text_of(answer):
    """The browser keeps no body of an answer that the page before had asked for."""
    try:
        return answer.text()
    except Error:
        return ""


class Spy:
    """A window that keeps every answer of the server that was a success."""

    def __init__(self, browser, world, user):
        self.console = Console(browser, world.url, user.key).login()
        self.answers = []
        self.console.page.on("response", self._keep)

    def _keep(self, response):
        if response.ok and "/api/" in response.url:
            self.answers.append(response)

    def open(self, path):
        """Returns what the page shows and all that it was told."""
        self.answers.clear()
        page = self.console.open(path)
        page.wait_for_load_state("networkidle")
        told = "\n".join(map(text_of, self.answers))
        return page.locator("body").inner_text(), told


def secrets_of(user):
    return [user.session, user.run, user.trace, f'"{user.name}"']


def lists_narrowed_to(user):
    """Addresses that ask for things of a user on the pages of another."""
    for key, value in [("user", user.name), ("session", user.session), ("run", user.run)]:
        for page in ("/traces", "/logs", "/runs", "/samplers", "/tenants"):
            yield f"{page}?{key}={value}"
    yield f"/logs?trace={user.trace}"
    yield f"/logs?level=debug&text={user.session}"
    yield f"/traces?text={user.session}"
    yield f"/runs?runs={user.run}"
    yield f"/metrics?view=catalogue&metric=tuft.training.tokens&where=tenant:{user.name}"


@pytest.mark.parametrize("attacker,victim", [("bob", "alice"), ("alice", "bob")])
def test_no_page_tells_anything_of_another_user(browser, world, attacker, victim):
    spy, owner = Spy(browser, world, getattr(world, attacker)), getattr(world, victim)
    paths = [view.path for view in views_of(owner)] + list(lists_narrowed_to(owner))
    for path in paths:
        _, told = spy.open(path)
        found = [secret for secret in secrets_of(owner) if secret in told]
        assert not found, (path, found)
    for path in LISTS:
        shown, told = spy.open(path)
        # A list has no id of the victim in its address, so none may be on the page either.
        found = [secret.strip('"') for secret in secrets_of(owner) if secret.strip('"') in shown or secret in told]
        assert not found, (path, found)
    spy.console.close()


def test_somebody_elses_things_look_like_things_that_never_were(browser, world):
    spy = Spy(browser, world, world.bob)
    for foreign, never in [(f"/runs/{world.alice.run}", "/runs/0000:train:0"),
                           (f"/traces/{world.alice.trace}", f"/traces/{'f' * 32}")]:
        shown = [spy.open(path)[0] for path in (foreign, never)]
        parts = [path.split("/")[-1] for path in (foreign, never)]
        texts = [text.replace(part, "ID").replace(part[:8], "ID") for text, part in zip(shown, parts, strict=True)]
        assert texts[0].split("ID")[-1] == texts[1].split("ID")[-1]
    spy.console.close()


def test_what_only_an_operator_has(world, alice, operator):
    for path in ("/system", "/system?tab=configuration", "/system?tab=passes"):
        page = alice.open(path)
        expect(page.get_by_text("Workers and configuration are shown to operators")).to_be_visible()
        expect(page.get_by_role("tab", name="Configuration")).to_have_count(0)
    expect(alice.page.get_by_role("button", name="Diagnostic bundle")).to_have_count(0)
    assert alice.page.evaluate("""async () => (await fetch("/api/v1/observe/bundle",
        {headers: {"X-Tuft-Console": "1"}})).status""") == 403
    alice.problems.clear()
    page = operator.open("/system?tab=configuration")
    text = page.locator("main").inner_text()
    assert "***" in text and world.alice.key not in text


def test_an_operator_sees_both(world, operator):
    for path, label in [("/runs", "Training runs"), ("/samplers", "Samplers"), ("/tenants", "Tenants"), ("/traces", "Traces")]:
        grid = operator.open(path).get_by_role("grid", name=label)
        for user in world.users:
            expect(grid.get_by_text(user.name, exact=True).first).to_be_visible()
    for user in world.users:
        expect(operator.open(f"/traces/{user.trace}").locator(".why-summary")).to_be_visible()


def status(url, **headers):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_the_cookie_counts_only_for_the_console_itself(world, alice):
    (cookie,) = [one for one in alice.context.cookies() if one["name"] == "tuft_console"]
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict" and cookie["value"] != world.alice.key
    assert "tuft_console" not in alice.page.evaluate("document.cookie")
    stored = alice.page.evaluate("JSON.stringify({...localStorage, ...sessionStorage})")
    assert world.alice.key not in stored and cookie["value"] not in json.dumps(stored)
    url, sent = f"{world.url}/api/v1/observe/whoami", {"Cookie": f"tuft_console={cookie['value']}"}
    assert status(url, **sent, **{"X-Tuft-Console": "1"}) == 200
    assert status(url, **sent) == 401
    assert status(url, **sent, **{"X-Tuft-Console": "1", "Origin": "http://evil.example"}) in (401, 403)
    alice.page.get_by_role("button", name="Log out").click()
    expect(alice.page.get_by_label("API key")).to_be_visible()
    assert status(url, **sent, **{"X-Tuft-Console": "1"}) == 401


def test_the_policy_of_the_pages(world):
    with urllib.request.urlopen(f"{world.url}/console/") as answer:
        policy = answer.headers["Content-Security-Policy"]
    assert "unsafe" not in policy and "script-src 'self'" in policy and "connect-src 'self'" in policy
