"""One server under the demo's load and one browser for all tests, and a window for each user."""

import pytest
from browser import PHONE, Console, chromium
from world import World


def pytest_addoption(parser):
    parser.addoption("--results", default=None, help="folder for the figures of test_large.py")


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    with World(tmp_path_factory.mktemp("console")) as made:
        yield made


@pytest.fixture(scope="session")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture
def open_console(browser, world):
    """Makes logged in windows, and at the end of the test checks that nothing went wrong in them."""
    windows = []

    def make(key, **options):
        windows.append(Console(browser, world.url, key, **options).login())
        return windows[-1]

    yield make
    for window in windows:
        window.close()
    assert not [problem for window in windows for problem in window.problems]


@pytest.fixture
def operator(open_console, world):
    return open_console(world.operator.key)


@pytest.fixture
def alice(open_console, world):
    return open_console(world.alice.key)


@pytest.fixture
def bob(open_console, world):
    return open_console(world.bob.key)


@pytest.fixture
def phone(open_console, world):
    return open_console(world.operator.key, viewport=PHONE)
