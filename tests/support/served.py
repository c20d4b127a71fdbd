"""Fixtures: the tiny model, a server for each test file, and clients of its two users."""
import os
import subprocess

import pytest
import sdk_exit
import tinker

import tuft_server
from raw_client import RawClient
from tuft_server import ALICE, BOB, TuftServer, clean_environment, configuration

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["NO_PROXY"] = "127.0.0.1,localhost"


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory):
    return tuft_server.init_model(tmp_path_factory.mktemp("models") / "tiny", "--family", "qwen3", "--size", "tiny",
                                  "--seed", "7")


@pytest.fixture(scope="module")
def server(model_dir, tmp_path_factory):
    """One server for the tests of a file. If it logged an error, the last test's teardown fails."""
    running = TuftServer(tmp_path_factory.mktemp("home"), configuration(model_dir))
    running.expected_errors = []
    running.start()
    yield running
    status, seconds = running.stop()
    assert status == 0, running.log
    assert seconds < 5, f"the stop took {seconds:.1f} s\n{running.log}"
    unexpected = [line for line in running.error_lines() if not any(word in line for word in running.expected_errors)]
    assert not unexpected, "\n".join(unexpected)


def service_client(server, key=ALICE):
    return tinker.ServiceClient(base_url=server.url, api_key=key)


def sdk_cli(server, *arguments, key=ALICE, cwd=None):
    """Runs the `tinker` CLI as the user of the key, and returns its status and output."""
    environment = {**clean_environment(), "TINKER_BASE_URL": server.url, "TINKER_API_KEY": key, "TINKER_TELEMETRY": "0"}
    return subprocess.run([*sdk_exit.CLI, *arguments], capture_output=True, text=True, timeout=120, env=environment,
                          cwd=cwd)


@pytest.fixture
def alice(server):
    return service_client(server, ALICE)


@pytest.fixture
def bob(server):
    return service_client(server, BOB)


@pytest.fixture
def raw(server):
    return RawClient(server.url, ALICE)


@pytest.fixture
def raw_bob(server):
    return RawClient(server.url, BOB)
