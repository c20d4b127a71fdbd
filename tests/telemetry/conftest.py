import os

import pytest

import tuft_server
import workload

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["NO_PROXY"] = "127.0.0.1,localhost"


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory):
    return tuft_server.init_model(tmp_path_factory.mktemp("models") / "tiny", "--family", "qwen3", "--size", "tiny",
                                  "--seed", "7")


@pytest.fixture(scope="module")
def exported(model_dir, tmp_path_factory):
    """What a collector got of every operation, well and failed, until the server ended."""
    server, receiver = workload.start_exporting(model_dir, tmp_path_factory.mktemp("home"))
    receiver.run = workload.train_and_sample(server.url)
    workload.fail(server.url)
    workload.finish(server, receiver)
    yield receiver
    receiver.stop()
