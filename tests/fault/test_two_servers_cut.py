"""Two servers, Redis, a worker and clients, each on a host of its own: the leader is cut off, and whatever it still believes,
the state has one leader. Where the server knows no second one, these tests are skipped."""
import contextlib
import importlib.util
import json
import subprocess
import threading
import urllib.request

import joining
import pytest
import tuft_server

import hosts
import lab_results
import redis_server
from certificates import make_certificates
from hosts import Network
from raw_client import RawClient
from tuft_server import ALICE, MODEL, TuftServer, configuration, wait_until

ONE_SERVER = None if importlib.util.find_spec("pair") else "this version has no second server (tests/support/pair.py)"
MISSING = ONE_SERVER or hosts.MISSING or redis_server.MISSING
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
SERVERS = ("server0", "server1")
ADDRESSES = ("10.79.1.2", "10.79.2.2")
API, JOIN, REDIS = 10610, 10620, 6379  # each host has ports of its own
SECONDS = 30


class Servers:
    """Within `with`, the calling thread is at a host that no test cuts off, and server0 leads."""

    def __init__(self, folder, model):
        self.folder, self.model = folder, model
        self.net = Network(*SERVERS, "redis", "worker", "client", "operator")
        assert tuple(self.net[name].address for name in SERVERS) == ADDRESSES
        self.certificates = make_certificates(folder / "of_servers", ADDRESSES)
        (folder / "token").write_text(joining.TOKEN + "\n")
        (folder / "token").chmod(0o600)
        self.servers = {}

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            stack.callback(self.net.close)
            stack.enter_context(self.net["operator"].entered())
            with self.net["redis"].entered():
                redis = subprocess.Popen(["redis-server", "--bind", "0.0.0.0", "--port", str(REDIS), "--protected-mode", "no",
                                          "--dir", self.folder, "--appendonly", "yes", "--appendfsync", "always", "--save", ""],
                                         stdout=subprocess.DEVNULL)
            stack.callback(redis.wait)
            stack.callback(redis.kill)
            stack.callback(self.end)
            for name, role in zip(SERVERS, ("leader", "standby"), strict=True):
                self.start(name)
                self.await_role(name, role)
            with self.net["worker"].entered():
                self.worker = joining.Worker(f"{JOIN},{ADDRESSES[1]}:{JOIN}", self.certificates, self.model, server=ADDRESSES[0])
            stack.callback(self.worker.end)
            self.await_health("server0", "ready", True)
            self.undo = stack.pop_all()
        return self

    def __exit__(self, *what):
        self.undo.__exit__(*what)

    def end(self):
        self.net.heal()
        for server in self.servers.values():
            server.stop()

    def start(self, name):
        address = self.net[name].address
        join = {"host": address, "port": JOIN, "certificate": str(self.certificates / "server.pem"),
                "private_key": str(self.certificates / "server.key"), "token_file": str(self.folder / "token"),
                # A worker that kept its adapters would lose nothing (test_workers_back.py), and nothing would be told.
                "lease_seconds": joining.LEASE, "keep_seconds": 0}
        persistence = {"mode": "REDIS", "redis_url": f"redis://{self.net['redis'].address}:{REDIS}", "namespace": "cut"}
        server = self.servers[name] = TuftServer(self.folder / name, configuration(
            self.model, model={"worker": "joined"}, join=join, persistence=persistence,
            checkpoint_dir=str(self.folder / "checkpoints")))
        server.arguments = ["--host", address, "--port", str(API)]
        server.url = f"http://{address}:{API}"
        with self.net[name].entered():
            server.spawn()

    def health(self, name):
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(self.servers[name].url + "/api/v1/healthz", timeout=2) as answer:
                return json.load(answer)
        return {}

    def await_health(self, name, key, value):
        wait_until(lambda: self.health(name).get(key) == value, SECONDS, f"{name}: {key} is {value}")

    def await_role(self, name, role):
        self.await_health(name, "role", role)

    def trainer(self):
        """Returns a run at step 2, of which step 1 is saved."""
        run = joining.Trainer(self.servers["server0"])
        assert run.step() == 1
        run.save("one")
        assert run.step() == 2
        return run

    def check_goes_on(self, run):
        """server1 leads, and the run goes on there from its checkpoint."""
        self.await_health("server1", "ready", True)
        run.client = RawClient(self.servers["server1"].url, ALICE)
        run.seq += 2  # a step that the former leader may have accepted
        told = str(run.step())
        assert "went back to checkpoint" in told, told
        assert run.step() == 2
        listed = run.client.get(f"training_runs/{run.model}/checkpoints").json["checkpoints"]
        assert {one["checkpoint_id"] for one in listed} <= {"weights/one", "weights/late"}

    def check_comes_back(self):
        """The former leader has ended, because another one leads; started again, it stands by."""
        assert self.servers["server0"].wait_exit() == 3, self.servers["server0"].log
        (self.servers["server0"].home / "tuft_current_server").unlink(missing_ok=True)
        self.start("server0")
        self.await_role("server0", "standby")
        assert self.health("server1")["role"] == "leader"


@pytest.fixture
def cluster(tmp_path, model_dir):
    with Servers(tmp_path, model_dir) as made:
        yield made


def keep_asking(cluster, run, answers):
    """Sends steps to the former leader until it is gone, and notes what it confirms."""
    client = RawClient(cluster.servers["server0"].url, ALICE, timeout=5)
    with contextlib.suppress(OSError, AssertionError, ValueError, KeyError):
        passed = client.result(client.train(run.model, run.seq + 1), protobuf=True)
        stepped = client.result(client.optim(run.model, run.seq + 2))
        answers.append((passed, stepped.json["metrics"]["optimizer_step"]))


CUTS = {
    "the leader from Redis": lambda net: net.partition("server0", "redis"),
    "what Redis answers the leader": lambda net: net.drop("redis", "server0"),
    "the leader from all but its client": lambda net: [net.partition("server0", name)
                                                       for name in ("redis", "server1", "worker")],
}


@pytest.mark.parametrize("cut", CUTS)
def test_a_leader_that_is_cut_off_confirms_nothing_and_ends(cluster, cut):
    run, answers = cluster.trainer(), []
    CUTS[cut](cluster.net)
    asking = threading.Thread(target=keep_asking, args=(cluster, run, answers))
    asking.start()
    cluster.await_role("server1", "leader")
    asking.join(SECONDS)
    assert not answers, "a step is confirmed that the state does not have"
    cluster.net.heal()
    cluster.check_goes_on(run)
    cluster.check_comes_back()
    lab_results.note("network", f"two servers; cut: {cut}", 1, "the other one leads; nothing is lost without a word")


@pytest.mark.parametrize("pair", [("server0", "server1"), ("server1", "redis")], ids=["from the leader", "from Redis"])
def test_a_standby_that_is_cut_off_disturbs_nobody(cluster, pair):
    run = cluster.trainer()
    cluster.net.partition(*pair)
    for step in range(3, 6):
        assert run.step() == step
    wait_until(lambda: not cluster.health("server1") or cluster.health("server1")["role"] == "standby", SECONDS, "it stands by")
    cluster.net.heal()
    assert run.step() == 6 and cluster.health("server0")["role"] == "leader"
    lab_results.note("network", f"two servers; the standby is cut off from {pair[0] if pair[1] == 'server1' else 'Redis'}", 1,
                     "the leader goes on")


def test_a_worker_that_reaches_only_the_standby_waits(cluster):
    """The standby has no lease, so it takes no worker."""
    run = cluster.trainer()
    cluster.net.partition("server0", "worker")
    wait_until(lambda: joining.states(cluster.servers["server0"]) == ["dead"], SECONDS, "the worker is missed")
    assert cluster.health("server1")["ready"] is False and cluster.health("server0")["role"] == "leader"
    cluster.net.heal()
    cluster.await_health("server0", "ready", True)
    assert "went back to checkpoint" in str(run.step())
    assert run.step() == 2
    lab_results.note("network", "two servers; the worker reaches only the standby", 1, "it waits for the leader")
