"""Debian's Chromium, and a page of the console that remembers what went wrong in it."""

import contextlib
import re

from playwright.sync_api import Error, expect, sync_playwright

from tuft_server import wait_until

CHROMIUM = "/usr/bin/chromium"
# The browser itself asks nobody for anything.
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
# What is not an error of the page: the question who is logged in, before anybody is.
EXPECTED = re.compile(r"/api/v1/observe/whoami$")


@contextlib.contextmanager
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        expect.set_options(timeout=20_000)
        yield browser
        browser.close()


def eventually(page, expression, seconds=20):
    """Waits until an expression of the page is true. Playwright's own wait is evaluated under the page's policy."""
    return wait_until(lambda: page.evaluate(expression), seconds, expression)


class Console:
    """A window of one user: its cookies, its pages, and the errors that were seen in them."""

    def __init__(self, browser, url, key, scheme="light", viewport=None):
        self.url, self.key = url, key
        self.context = browser.new_context(viewport=viewport or DESKTOP, color_scheme=scheme, reduced_motion="reduce")
        self.context.set_default_timeout(20_000)
        self.problems = []
        self.page = self.new_page()

    def new_page(self):
        page = self.context.new_page()
        page.on("pageerror", lambda error: self.problems.append(f"{page.url}: {error}"))
        page.on("console", lambda message: self._said(page, message))
        page.on("response", lambda response: self._answered(page, response))
        page.on("request", lambda request: self._asked(page, request))
        return page

    def _said(self, page, message):
        if message.type == "error" and not EXPECTED.search((message.location or {}).get("url", "")):
            self.problems.append(f"{page.url}: {message.text} {message.location}")

    def _answered(self, page, response):
        if response.status >= 400 and not EXPECTED.search(response.url):
            self.problems.append(f"{page.url}: {response.status} {response.url}")

    def _asked(self, page, request):
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.problems.append(f"{page.url}: a request to {request.url}")

    def login(self):
        page = self.page
        page.goto(f"{self.url}/console/")
        page.get_by_label("API key").fill(self.key)
        page.keyboard.press("Enter")
        page.locator("#main").wait_for()
        return self

    def open(self, path, page=None):
        """Goes to a path of the console as one who was sent its address, and waits for the page."""
        page = page or self.page
        page.goto(f"{self.url}/console{path}")
        self.settle(page)
        return page

    def settle(self, page=None):
        """Waits until the page has its first answers: no placeholder is shown, and no list is being asked for."""
        page = page or self.page
        page.locator("#main").wait_for()
        expect(page.locator(".skeleton")).to_have_count(0)

    def close(self):
        """Ends the session, too: a user has at most 16, and the oldest is ended by the next login."""
        for page in self.context.pages:  # a live page would ask again, and be refused
            page.close()
        with contextlib.suppress(Error):
            self.context.request.post(f"{self.url}/console/logout", headers={"X-Tuft-Console": "1"})
        self.context.close()
