"""deploy/ray/tuft_workers.py on real nodes of Ray, with a real server."""
import os
import pathlib
import signal
import subprocess

import pytest
from conftest import await_counts, left, row, train_with_the_sdk
from joining import Trainer, rows
from raw_client import RawClient
from tuft_server import ALICE, BIN, LoggedProcess, alive, clean_environment, tuft, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("TUFT_RAY_PYTHON", str(ROOT / "build/peers/ray/bin/python"))
NODES = pathlib.Path(__file__).with_name("ray_nodes.py")
ENVIRONMENT = {**clean_environment(), "RAY_USAGE_STATS_ENABLED": "0"}
SECONDS = 90  # Ray misses a node after 15 seconds


def has_ray():
    find = "import importlib.util, sys; sys.exit(importlib.util.find_spec('ray') is None)"
    return os.access(PYTHON, os.X_OK) and subprocess.run([PYTHON, "-c", find]).returncode == 0


pytestmark = pytest.mark.skipif(not has_ray(), reason=f"{PYTHON} has no ray (pip install ray==2.52.*); TUFT_RAY_PYTHON "
                                                      "names another interpreter")


class Nodes(LoggedProcess):
    """A head of Ray without cores, and nodes."""

    def __init__(self):
        super().__init__()
        self.spawn_logged([PYTHON, NODES], ENVIRONMENT, stdin=subprocess.PIPE)
        self.address = wait_until(lambda: [line for line in self.lines if line.count(":") == 1 and line[-1].isdigit()],
                                  SECONDS, "Ray's head runs")[0]

    def answers(self):
        return [line for line in self.lines if line.startswith(("added ", "ended "))]

    def tell(self, *words):
        """Returns the id of the node that was added or ended."""
        done = len(self.answers())
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()
        return wait_until(lambda: self.answers()[done:], SECONDS, f"{words}:\n{self.log}")[0].split()[1]

    def end(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


class Script(LoggedProcess):
    def __init__(self, nodes, flags):
        super().__init__()
        self.spawn_logged([PYTHON, ROOT / "deploy/ray/tuft_workers.py", "--workers", "2", "--address", nodes.address, "--",
                           BIN / "tuft-worker", *flags], ENVIRONMENT)
        wait_until(lambda: "Connected to Ray cluster" in self.log, SECONDS, "the script has found the head")


@pytest.fixture
def fleet(served):
    """A server, the nodes, and the script, which has two workers on two nodes."""
    server, flags = served
    nodes = Nodes()
    # A script connects to any node with the address of its machine, here to the head, the only one yet. It would end with
    # a node that a test kills. The actors wait for the nodes that come.
    script = Script(nodes, flags)
    nodes.tell("add")
    nodes.tell("add")
    try:
        await_counts(server, SECONDS, ready=1, standby=1)
        yield server, nodes, script
    finally:
        script.process.kill()
        script.process.wait()
        nodes.end()


def test_a_worker_comes_back_on_another_node(fleet):
    server, nodes, script = fleet
    assert train_with_the_sdk(server) == 1
    trainer = Trainer(server)
    assert trainer.step() == 1
    trainer.save("one")
    assert trainer.step() == 2
    lost, other = row(server, "ready")["launcher"], row(server, "standby")["launcher"]
    assert lost.keys() == {"ray.node.id", "ray.actor.id"}
    listed = tuft("workers", "--json", "--url", server.url, env={"TUFT_API_KEY": ALICE}).stdout
    assert lost["ray.node.id"] in listed and lost["ray.actor.id"] in listed, listed
    assert lost["ray.node.id"] != other["ray.node.id"] and lost["ray.actor.id"] != other["ray.actor.id"]
    nodes.tell("kill", lost["ray.node.id"])
    await_counts(server, SECONDS, dead=1, ready=1)
    assert row(server, "ready")["launcher"] == other
    wait_until(lambda: trainer.step() == 2, 30, "the run is restored from its checkpoint")
    new = nodes.tell("add")
    await_counts(server, SECONDS, dead=1, ready=1, standby=1)
    assert row(server, "standby")["launcher"] == {"ray.node.id": new, "ray.actor.id": lost["ray.actor.id"]}
    serving = row(server, "ready")["pid"]
    script.process.send_signal(signal.SIGTERM)
    assert script.process.wait(timeout=60) == 0, script.log
    await_counts(server, 30, dead=3)
    assert "2 workers ended, 0 did not in time, 0 had no place" in script.log
    assert left(server, serving), rows(server)
    assert server.log.count("worker.died") == 1


def test_a_node_that_is_stopped_loses_nothing(fleet):
    server, nodes, _ = fleet
    trainer = Trainer(server)
    assert trainer.step() == 1
    first = row(server, "ready")
    nodes.tell("stop", first["launcher"]["ray.node.id"])
    await_counts(server, SECONDS, dead=1, ready=1)
    assert left(server, first["pid"]), rows(server)
    assert trainer.step() == 2
    nodes.tell("add")
    await_counts(server, SECONDS, dead=1, ready=1, standby=1)


def test_a_worker_that_is_killed_is_started_again(fleet):
    server, _, _ = fleet
    killed = row(server, "ready")
    os.kill(killed["pid"], signal.SIGKILL)
    await_counts(server, SECONDS, dead=1, ready=1, standby=1)
    assert row(server, "standby")["launcher"]["ray.actor.id"] == killed["launcher"]["ray.actor.id"]


def test_workers_end_with_their_actors_and_their_script(fleet):
    server, _, script = fleet
    first = row(server, "ready")["pid"]
    parent = int(pathlib.Path(f"/proc/{first}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(parent, signal.SIGKILL)
    wait_until(lambda: not alive(first), 30, "the worker of the killed actor ends")
    await_counts(server, SECONDS, dead=1, ready=1, standby=1)
    serving = row(server, "ready")["pid"]
    script.process.kill()
    await_counts(server, SECONDS, dead=3)
    assert left(server, first) and left(server, serving) and "worker.died" not in server.log, rows(server)
    assert RawClient(server.url, ALICE).get("healthz").json["ready"] is False


def test_a_worker_that_is_refused_ends_the_script(served):
    _, flags = served
    nodes = Nodes()
    try:
        nodes.tell("add")
        script = Script(nodes, [*flags, "--model-name", "other"])
        assert script.process.wait(timeout=SECONDS) == 1
        wait_until(lambda: script.log.count("a worker ended with status 1") == 2, 10, "the script says why")
    finally:
        nodes.end()
