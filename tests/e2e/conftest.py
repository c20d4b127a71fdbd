import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["NO_PROXY"] = "127.0.0.1,localhost"


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    from world import World

    made = World(tmp_path_factory.mktemp("world"))
    yield made
    made.stop()
