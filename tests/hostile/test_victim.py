"""One tenant attacks each thing that tenants share, and another trains and samples: no operation of the second fails, and
each loss, step and token is that of an undisturbed run. The attacker's programs take processors from the victim whatever
the server does, so its times are compared with those that it has while the same attack runs against another server on the
same machine. TUFT_LAB=1 repeats often and demands that its p99 at most doubles."""
import collections
import os
import time

import pytest
from tinker.proto import tinker_public_pb2 as pb

import lab_results
from attacker import ATTACKS, AttackerProcess
from raw_client import PROTOBUF, RawClient, forward_backward
from tuft_server import BOB, MODEL, TuftServer, configuration, wait_until

LAB = bool(os.environ.get("TUFT_LAB"))
TURNS = 100 if LAB else 12
ROUNDS = int(os.environ.get("TUFT_VICTIM_ROUNDS", "10" if LAB else "1"))
pytestmark = pytest.mark.timeout(3600 if LAB else 120)


class Victim:
    """Trains a fresh run and samples from the base model, always the same."""

    def __init__(self, url):
        self.client = RawClient(url, BOB, timeout=100)
        self.sampler = self.client.sampler(base_model=MODEL).json["sampling_session_id"]
        self.samples = 0
        self.losses, self.tokens = {}, None  # of the first run

    def live(self, turns):
        """Returns the seconds of each operation by its kind."""
        seconds = collections.defaultdict(list)
        session = self.client.session()
        model = self.client.model(MODEL, session, seed=5)
        for step in range(turns):
            begin = time.perf_counter()
            message = forward_backward(model, 2 * step + 1)
            self.passed(step, self.client.result(self.client.post_protobuf("forward_backward", message), protobuf=True))
            answer = self.client.result(self.client.optim(model, 2 * step + 2))
            assert answer.status == 200 and answer.json["metrics"]["optimizer_step"] == step + 1, answer
            between = time.perf_counter()
            self.samples += 1
            submitted = self.client.sample(self.sampler, self.samples, temperature=0.0)
            self.sampled(self.client.result(submitted, protobuf=True))
            seconds["train"].append(between - begin)
            seconds["sample"].append(time.perf_counter() - between)
        answer = self.client.post(f"sessions/{session}/finish", {})
        assert answer.status == 200, answer
        return seconds

    def passed(self, step, answer):
        assert answer.status == 200 and answer.headers["Content-Type"] == PROTOBUF, answer
        loss = pb.ForwardBackwardOutput.FromString(answer.body).metrics["loss:sum"]
        assert loss == pytest.approx(self.losses.setdefault(step, loss), rel=2e-3), f"the loss of step {step}"

    def sampled(self, answer):
        assert answer.status == 200 and answer.headers["Content-Type"] == PROTOBUF, answer
        tokens = pb.SampleResponse.FromString(answer.body).sequences[0].tokens
        self.tokens = self.tokens or tokens
        assert tokens == self.tokens


def running_server(model_dir, home):
    """The cache holds 16,384 tokens, which attacks fill within a second. By default two servers on one machine would each
    take half of its memory."""
    limits = {"kv_cache_bytes": 8 << 20, "adapter_memory_bytes": 32 << 20}
    config = configuration(model_dir, model=limits, persistence={"mode": "FILE"})
    return TuftServer(home, config, arguments=["--log-level", "error"])


@pytest.fixture(scope="module")
def server(model_dir, tmp_path_factory):
    with running_server(model_dir, tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture(scope="module")
def other(model_dir, tmp_path_factory):
    with running_server(model_dir, tmp_path_factory.mktemp("other")) as running:
        yield running


@pytest.fixture(scope="module")
def attacker():
    process = AttackerProcess()
    yield process
    process.end()


@pytest.fixture(scope="module")
def victim(server):
    return Victim(server.url)


@pytest.fixture(scope="module")
def undisturbed(victim):
    victim.live(TURNS)  # caches
    return victim.live(TURNS)


def live_beside(name, attacker, attacked, victim):
    """Returns the seconds of the victim's operations while `attacked` is attacked."""
    with attacker.attacking(name, attacked.url):
        wait_until(lambda: attacker.turns.value > 10, 60, f"{name} attacks")
        seconds = victim.live(TURNS)
    wait_until(lambda: attacked.metric("tuft_futures_running") == 0, 100, f"what {name} has left is done")
    print(f"{name}: {attacker.turns.value} turns of the attack {attacker.failures}")
    return seconds


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_neither_fails_nor_changes_what_another_tenant_does(server, other, attacker, victim, undisturbed, name):
    workers = server.worker_pids()
    disturbed, control = collections.defaultdict(list), collections.defaultdict(list)
    for _ in range(ROUNDS):
        for attacked, seconds in ((other, control), (server, disturbed)):
            for kind, measured in live_beside(name, attacker, attacked, victim).items():
                seconds[kind] += measured
    assert server.worker_pids() == workers, "the worker died"
    ratios = {}
    for kind, seconds in disturbed.items():
        ratios[kind] = lab_results.percentile(seconds, 0.99) / lab_results.percentile(control[kind], 0.99)
        text = (f"{lab_results.shown(seconds)}; the same attack on another server {lab_results.shown(control[kind])}: "
                f"p99 x {ratios[kind]:.1f}; no attack {lab_results.shown(undisturbed[kind])}")
        print(f"{name}, {kind}: {text}")
        lab_results.note("victim", f"{name}, {kind}", len(seconds), f"no failure, data whole; {text}")
    if LAB:
        assert max(ratios.values()) <= 2, ratios
