"""Workers on other hosts, and networks between them and the server that fail: nothing that was acknowledged is lost without
its client being told, nothing is done twice, and nothing that lives is declared dead. TUFT_NETWORK_ROUNDS=100 tries more
random faults, TUFT_NETWORK_SEED=<number> repeats the choices of a run (but not its timing)."""
import os
import random
import signal
import socket
import time

import pytest
from joining import Trainer

import hosts
import lab_results
from cluster import LAB, WORKERS, Cluster, certificates, one, two  # noqa: F401
from raw_client import RawClient
from tuft_server import ALICE

pytestmark = pytest.mark.skipif(hosts.MISSING is not None, reason=str(hosts.MISSING))
ROUNDS = int(os.environ.get("TUFT_NETWORK_ROUNDS", "3"))
SEED = int(os.environ.get("TUFT_NETWORK_SEED", random.SystemRandom().randrange(10**6)))

TCP_RTO_MAX_MS = 44
FAULTS = {
    "nothing passes": lambda net, host: net.partition("server", host),
    "what it sends is lost": lambda net, host: net.drop(host, "server"),
    "what it is sent is lost": lambda net, host: net.drop("server", host),
    "all is reset": lambda net, host: net.reset("server", host),
    "the router is restarted": lambda net, host: net.restart_router(),
}
SHORT = ("nothing passes", "what it sends is lost", "the router is restarted")


def note(tried, load, more=""):
    lab_results.note("network", tried, 1, f"{load}; none lost without a word or done twice{more}")


def test_a_cut_shorter_than_the_lease_costs_nothing(one):
    with one.load() as load:
        for _ in range(2):
            one.net.partition("server", "worker1")
            time.sleep(one.lease / 3)
            one.net.heal()
            load.await_steps(3)
    assert load.losses == 0 and one.ended() == 0, one.rows()
    note("one worker, twice cut off for a third of its lease", load)


def has_rto_max():
    with socket.socket() as one:
        try:
            one.setsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS, 1000)
        except OSError:
            return False
    return True


@pytest.mark.skipif(not has_rto_max(), reason="this kernel does not know TCP_RTO_MAX_MS (Linux 6.15)")
def test_a_network_that_works_again_is_noticed_in_time(tmp_path, certificates):
    """What TCP sends again after twice as long each time, it would send after 3.0 and 6.2 seconds here."""
    with Cluster(tmp_path, certificates, lease=5) as cluster:
        with cluster.load() as load:
            cluster.net.partition("server", "worker1")
            time.sleep(3.6)
            cluster.net.heal()
            load.await_steps(1)
        assert load.losses == 0 and cluster.ended() == 0, cluster.rows()
    note("one worker, cut off for 3.6 s; the lease is 5 s", load)


def test_the_only_worker_is_cut_off_for_longer_than_its_lease(one):
    with one.load() as load:
        one.net.partition("server", "worker1")
        one.await_states()
        one.net.heal()
        one.await_states("ready")
    note("one worker, cut off for longer than its lease", load)


@pytest.mark.parametrize("fault", FAULTS if LAB else SHORT)
def test_runs_of_a_worker_that_is_cut_off_go_on_at_the_other(two, fault):
    """It comes back with what it held, while its runs live elsewhere."""
    with two.load() as load:
        FAULTS[fault](two.net, "worker1")
        if fault != "the router is restarted":  # afterwards the worker joins again
            two.await_that(lambda: two.moves("lost") >= 1, "runs move")
        load.await_steps(2)
        two.net.heal()
        two.await_states("ready", "ready")
        load.await_steps(2)
    assert two.row_of("worker2")["state"] == "ready" or fault == "the router is restarted", two.rows()
    note(f"one of two workers: {fault}", load)


@pytest.mark.parametrize("both", [False, True], ids=["alone", "with the standby for a while"])
def test_a_standby_takes_the_place_of_a_worker_that_is_cut_off(one, both):
    one.join("worker2")
    one.await_states("ready", "standby")
    with one.load() as load:
        for worker in WORKERS if both else WORKERS[:1]:
            one.net.partition("server", worker)
        one.await_that(lambda: one.row_of("worker1")["state"] == "dead", "the worker is missed")
        one.net.heal("server", "worker2")
        one.await_that(lambda: one.row_of("worker2")["state"] == "ready", "the standby serves")
        load.await_steps(2)
        one.net.heal()
        one.await_states("ready", "standby")
    note("a standby takes over" + (", which was cut off as well for a while" if both else ""), load)


class Pair:
    """Two runs, one at each worker, at step 2, of which step 1 is saved as `one`."""

    def __init__(self, cluster):
        self.cluster, self.runs = cluster, [Trainer(cluster.server), Trainer(cluster.server)]
        self.losses = {}  # of each run at step 1
        for run in self.runs:
            assert run.step() == 1
            run.save("one")
            self.losses[run] = run.loss()
            assert optim(run) == 2

    def split(self, answers):
        """`answers` of both runs, of which one fails because its worker is lost. Returns that run, its error, and the
        other."""
        failed = {run: answer["error"] for run, answer in answers.items() if "error" in answer}
        assert len(failed) == 1, answers
        (lost,) = failed
        assert "worker" in failed[lost], failed
        return lost, next(run for run in self.runs if run is not lost)

    def check(self, lost, kept):
        """The lost run goes on from step 1, the other one from step 3."""
        assert self.cluster.moves("lost") <= 1
        assert lost.loss() == pytest.approx(self.losses[lost], rel=1e-6)
        assert optim(lost) == 2
        assert kept.step() == 4


def optim(run):
    """Returns the number of the step."""
    return run.send("optim_step", adam_params={"learning_rate": 1e-3}, type="optim_step")["metrics"]["optimizer_step"]


def submit_step(run):
    """Returns what a pass and a step were answered."""
    run.seq += 2
    return run.client.train(run.model, run.seq - 1), run.client.optim(run.model, run.seq)


def result(run, submitted):
    return run.client.result(submitted).json


def test_a_step_whose_answer_is_lost_is_not_counted(two):
    """The worker makes the step and cannot say so. Its run goes on elsewhere, from the checkpoint."""
    pair = Pair(two)
    two.net.drop("worker1", "server")
    submitted = {run: submit_step(run) for run in pair.runs}
    lost, kept = pair.split({run: result(run, step) for run, (_, step) in submitted.items()})
    assert result(kept, submitted[kept][1])["metrics"]["optimizer_step"] == 3
    two.net.heal()
    two.await_states("ready", "ready")
    assert "error" in result(lost, submitted[lost][1]), "what was reported as failed stays so"
    pair.check(lost, kept)
    lab_results.note("network", "a step whose answer is lost on the way", 1, "its client is told; it is not counted")


ROUTES = {"save_weights": "weights", "save_weights_for_sampler": "sampler_weights"}
SAVES = [(route, stops) for route in ROUTES for stops in (False, True)]


@pytest.mark.parametrize("route, stops", SAVES if LAB else [SAVES[0], SAVES[3]])
def test_what_a_worker_saves_when_it_is_cut_off_does_not_count(two, route, stops):
    """It writes the files and cannot say so; or it is stopped, and writes them after its lease."""
    pair, folder = Pair(two), ROUTES[route]
    for run in pair.runs:
        assert run.step() == 3

    def unfinished():
        return list((two.server.home / "checkpoints").rglob(".tuft-*"))

    def save(run):
        run.seq += 1
        return run.client.post(route, {"model_id": run.model, "path": "late", "seq_id": run.seq, "type": route})

    if stops:
        two.workers["worker1"].signal(signal.SIGSTOP)
    else:
        two.net.drop("worker1", "server")
    submitted = {run: save(run) for run in pair.runs}
    two.server.wait_until_running(route)
    if stops:
        two.net.partition("server", "worker1")
    elif route == "save_weights":  # the other one is published first, and written later
        two.await_that(unfinished, "the worker writes")
    two.await_that(lambda: two.moves("lost") == 1, "the run moves")
    two.workers["worker1"].signal(signal.SIGCONT)
    lost, kept = pair.split({run: result(run, answer) for run, answer in submitted.items()})
    two.net.heal()
    two.await_states("ready", "ready")

    def saves(run):
        listed = run.client.get(f"training_runs/{run.model}/checkpoints").json["checkpoints"]
        return f"{folder}/late" in [one["checkpoint_id"] for one in listed]

    assert saves(kept) and not saves(lost)
    two.await_that(lambda: not unfinished(), "no unfinished checkpoint is left on disk")
    assert "path" in result(lost, save(lost)) and saves(lost), "the name is free"
    pair.check(lost, kept)
    lab_results.note("network", f"{route} in a worker that is cut off" + (", and stopped" if stops else ""), 1,
                     "the client is told; nothing is listed, nothing left on disk")


def test_a_drain_through_a_short_cut_loses_nothing(two):
    pair = Pair(two)
    for run in pair.runs:
        run.loss()  # a drain waits for the end of the step
    two.workers["worker1"].signal(signal.SIGTERM)
    two.await_states("draining", "ready")
    two.net.partition("server", "worker1")
    submitted = {run: run.client.optim(run.model, run.seq + 1) for run in pair.runs}
    time.sleep(two.lease / 3)
    two.net.heal()
    assert [result(run, step)["metrics"]["optimizer_step"] for run, step in submitted.items()] == [3, 3]
    assert two.workers["worker1"].process.wait(timeout=20) == 0
    for run in pair.runs:
        run.seq += 1
        assert run.step() == 4
    assert (two.moves("drained"), two.moves("lost")) == (1, 0)
    lab_results.note("network", "a drain, cut off for a third of the lease", 1, "nothing lost")


def test_a_worker_that_is_cut_off_in_a_drain_ends_by_itself(two):
    pair = Pair(two)
    for run in pair.runs:
        run.loss()
    two.workers["worker1"].signal(signal.SIGTERM)
    two.await_states("draining", "ready")
    two.net.partition("server", "worker1")
    submitted = {run: run.client.optim(run.model, run.seq + 1) for run in pair.runs}
    lost, kept = pair.split({run: result(run, step) for run, step in submitted.items()})
    assert result(kept, submitted[kept])["metrics"]["optimizer_step"] == 3
    assert two.workers["worker1"].process.wait(timeout=30) == 0, two.logs()
    two.net.heal()
    for run in pair.runs:
        run.seq += 1
    pair.check(lost, kept)
    lab_results.note("network", "a drain, cut off for good", 1, "the worker ends by itself; the client is told")


def test_a_run_that_was_moved_goes_on_at_a_worker_that_was_cut_off(two):
    pair = Pair(two)
    two.workers["worker1"].signal(signal.SIGTERM)
    assert two.workers["worker1"].process.wait(timeout=20) == 0
    assert two.moves("drained") == 1
    assert [run.step() for run in pair.runs] == [3, 3]
    two.net.partition("server", "worker2")
    two.await_states()
    two.net.heal()
    two.await_states("ready")

    def is_moved(run):
        listed = run.client.get(f"training_runs/{run.model}/checkpoints").json["checkpoints"]
        return any("weights/moved-" in one["checkpoint_id"] for one in listed)

    assert sorted(map(is_moved, pair.runs)) == [False, True]
    assert [run.step() for run in pair.runs] == [4, 4]
    lab_results.note("network", "a worker that has got a run of another one is cut off", 1,
                     "it comes back with both runs, and nothing is lost")


def test_the_server_is_killed_while_a_worker_is_cut_off(two):
    """The worker comes back with what the former server had given it."""
    pair = Pair(two)
    two.net.partition("server", "worker1")
    submitted = {run: submit_step(run) for run in pair.runs}
    two.server.process.kill()
    two.server.wait_exit()
    (two.server.home / "tuft_current_server").unlink()
    two.start_server()
    two.net.heal()
    two.await_states("ready", "ready")
    for run in pair.runs:
        run.client = RawClient(two.server.url, ALICE)
        passed, stepped = (result(run, one) for one in submitted[run])
        # A worker that was cut off never got them.
        not_begun = "before a worker had begun" in str(stepped)
        assert not_begun or stepped["metrics"]["optimizer_step"] == 3, (passed, stepped)
        assert run.step() == (3 if not_begun else 4)
    lab_results.note("network", "kill -9 of the server while one of two workers is cut off", 1,
                     "both join again with their runs; what no worker had begun fails, and its client is told")


def test_the_server_is_cut_off_from_all_workers(two):
    with two.load() as load:
        for worker in WORKERS:
            two.net.partition("server", worker)
        two.await_states()
        two.net.heal()
        two.await_states("ready", "ready")
    note("both workers, cut off for longer than their lease", load)


def begin_fault(cluster, fault, host):
    worker = cluster.workers.get(host)
    if fault == "its process is stopped":
        worker.signal(signal.SIGSTOP)
    elif fault == "it is told to end":  # and another one is started there
        worker.signal(signal.SIGTERM)
        cluster.ending.append(worker)
        cluster.join(host)
    else:
        FAULTS[fault](cluster.net, host)


@pytest.mark.timeout(120 + 15 * ROUNDS)
def test_random_faults(two):
    """Some of them overlap."""
    chance = random.Random(SEED)
    with two.load(SEED) as load:
        for number in range(ROUNDS):
            host = chance.choice([*WORKERS, "client"])
            of_workers = ["its process is stopped", "it is told to end"] if host in WORKERS else []
            fault, seconds = chance.choice([*FAULTS, *of_workers]), chance.uniform(0.1, 2 * two.lease)
            print(f"round {number} of TUFT_NETWORK_SEED={SEED}: {host}, {fault}, for {seconds:.1f} s; {load}")
            begin_fault(two, fault, host)
            time.sleep(seconds)
            load.raise_errors()
            if chance.random() < 0.7:
                two.heal()
            if chance.random() < 0.5:
                two.heal()
                two.await_states("ready", "ready")
        two.heal()
        two.await_states("ready", "ready")
    lab_results.note("network", f"random faults of workers and clients (seed {SEED})", ROUNDS,
                     f"{load}; none lost without a word or done twice")
