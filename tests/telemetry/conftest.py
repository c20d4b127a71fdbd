import os

import pytest

import tuft_server

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["NO_PROXY"] = "127.0.0.1,localhost"


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory):
    return tuft_server.init_model(tmp_path_factory.mktemp("models") / "tiny", "--family", "qwen3", "--size", "tiny",
                                  "--seed", "7")
