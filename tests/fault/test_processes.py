"""A worker that is stopped with SIGSTOP, and a server without descriptors or memory: others are served, an operation fails
with a reason or waits, and afterwards everything works."""
import contextlib
import os
import pathlib
import resource
import signal
import socket
import urllib.parse

import pytest

import lab_results
from raw_client import PROTOBUF, RawClient
from tuft_server import ALICE, MODEL, TuftServer, alive, configuration, wait_until

CGROUPS = pathlib.Path("/sys/fs/cgroup/memory")
MEMORY = 8 << 20  # some adapters of the tiny model


@pytest.fixture
def server(model_dir, tmp_path):
    with TuftServer(tmp_path / "home", configuration(model_dir)) as running:
        yield running


def step(client, model, seq):
    assert client.result(client.train(model, seq), protobuf=True).headers["Content-Type"] == PROTOBUF
    return client.result(client.optim(model, seq + 1)).json["metrics"]["optimizer_step"]


def trains_again(server):
    """Returns True if a fresh run trains."""
    client = RawClient(server.url, ALICE, timeout=60)
    made = client.result(client.post("create_model", {"session_id": client.session(), "model_seq_id": 0, "base_model": MODEL,
                                                      "lora_config": {"rank": 4}, "type": "create_model"}))
    return "model_id" in made.json and step(client, made.json["model_id"], 1) == 1


def test_a_stopped_worker_delays_its_operations_and_nothing_else(server):
    client, other = RawClient(server.url, ALICE), RawClient(server.url, ALICE)
    model = client.model(MODEL)
    assert step(client, model, 1) == 1
    (worker,) = server.worker_pids()
    os.kill(worker, signal.SIGSTOP)
    try:
        submitted = client.train(model, 3)
        assert submitted.status == 200, submitted
        assert other.get("healthz").status == 200
        assert other.session()
        assert other.get(f"training_runs/{model}").status == 200
    finally:
        os.kill(worker, signal.SIGCONT)
    assert client.result(submitted, protobuf=True).headers["Content-Type"] == PROTOBUF
    assert client.result(client.optim(model, 4)).json["metrics"]["optimizer_step"] == 2
    assert server.worker_pids() == [worker]
    lab_results.note("processes", "SIGSTOP of the worker, then SIGCONT", 1, "others are served; the pass is done once")


def test_without_descriptors_open_connections_go_on_and_new_ones_work_later(server):
    client, pid = RawClient(server.url, ALICE), server.process.pid
    model = client.model(MODEL)
    assert step(client, model, 1) == 1
    parts = urllib.parse.urlsplit(server.url)
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = max(int(name) for name in os.listdir(f"/proc/{pid}/fd")) + 1
    with contextlib.ExitStack() as stack:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used, before[1]))
        stack.callback(resource.prlimit, pid, resource.RLIMIT_NOFILE, before)
        for _ in range(50):
            stack.enter_context(socket.create_connection((parts.hostname, parts.port), timeout=10))
        assert step(client, model, 3) == 2
        saved = client.result(client.post("save_weights", {"model_id": model, "path": "a", "seq_id": 5,
                                                           "type": "save_weights"}))
        outcome = "works" if "path" in saved.json else f"failed: {saved.json['error']}"
    wait_until(server.healthy, 20, "new connections work again")
    assert step(client, model, 6) == 3
    assert trains_again(server)
    lab_results.note("processes", "no free descriptor in the server", 1, f"training goes on; a save {outcome}; recovers")


def grow(client):
    """Makes adapters and trains them until an operation fails. Returns its error, or None."""
    for number in range(1, 60):
        made = client.result(client.post("create_model", {
            "session_id": client.session(), "model_seq_id": number, "base_model": MODEL, "lora_config": {"rank": 32},
            "type": "create_model"})).json
        if "error" not in made:
            trained = client.result(client.train(made["model_id"], 1), protobuf=True)
            made = {} if trained.headers["Content-Type"] == PROTOBUF else trained.json
        if "error" in made:
            return made["error"]
    return None


@contextlib.contextmanager
def memory_limit(pid, limit):
    """Limits what a process takes from here on to `limit` bytes, with a cgroup."""
    group = CGROUPS / f"tuft-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup for memory (version 1) can be made: {error}")
    try:
        (group / "memory.limit_in_bytes").write_text(str(limit))
        (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for one in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (CGROUPS / "cgroup.procs").write_text(one)
        with contextlib.suppress(OSError):
            group.rmdir()


def test_a_worker_that_the_kernel_ends_for_its_memory_is_said_and_started_again(server):
    client = RawClient(server.url, ALICE, timeout=60)
    client.model(MODEL)
    (worker,) = server.worker_pids()
    with memory_limit(worker, MEMORY):
        error = grow(client)
        died = not alive(worker)
    assert died and "worker" in error, error
    wait_until(lambda: trains_again(server), 60, "training on the new worker")
    assert server.process.poll() is None and server.healthy()
    said = error if error else "the limit was not reached"
    lab_results.note("processes", f"worker limited to {MEMORY >> 20} MiB more", 1, f"{said}; recovers")
