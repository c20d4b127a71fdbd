"""Split brain is tried and comes to nothing: two connections of one worker, and a worker that is wanted at two places."""
import hashlib
import signal
import time

import pytest
from joining import TOKEN

import hosts
import lab_results
from cluster import LAB, SERVER_ADDRESS, WORKERS, certificates, one, two  # noqa: F401
from joining_by_hand import join
from tuft_server import MODEL

pytestmark = pytest.mark.skipif(hosts.MISSING is not None, reason=str(hosts.MISSING))


def twin_of(cluster, host):
    """Joins under the id of the worker at this host, from another one, and says nothing more. Returns the connection."""
    row = cluster.row_of(host)
    config = hashlib.sha256((cluster.model / "config.json").read_bytes()).hexdigest()
    with cluster.net["client"].entered():
        connection, answer = join((SERVER_ADDRESS, cluster.port), cluster.certificates / "ca.pem", token=TOKEN,
                                  version=row["version"], base_model=MODEL, config_sha256=config,
                                  worker_id=row["worker_id"], host="twin")
    assert answer, "the server answers"
    return connection


def test_a_second_connection_with_the_id_of_a_worker_disturbs_no_run(one):
    with one.load() as load:
        twin = twin_of(one, "worker1")
        load.await_steps(3)
        twin.close()
        load.await_steps(3)
    assert load.losses == 0 and one.alive() == ["ready"], one.rows()
    lab_results.note("network", "a second connection with the id of a worker that serves", 1, f"{load}")


def test_a_twin_that_answers_nothing_does_not_keep_the_place_of_the_worker(one):
    """The twin is there when the worker dies, and takes its place; the worker comes back and gets it."""
    with one.load() as load:
        twin = twin_of(one, "worker1")
        one.workers["worker1"].end()
        one.await_that(lambda: one.alive() != ["ready", "standby"], "the worker is missed")
        one.join("worker1")
        one.await_that(lambda: "ready" in one.alive(), "the worker serves again")
        load.await_steps(3)
    twin.close()
    lab_results.note("network", "a twin of a worker takes its place and answers nothing", 1, f"{load}")


def test_both_workers_are_cut_off_in_turn(two):
    """Runs go to and fro between two workers, each of which comes back with what it held before."""
    turns = WORKERS * 4 if LAB else WORKERS
    with two.load() as load:
        for worker in turns:
            moved = two.moves("lost")
            two.net.partition("server", worker)
            two.await_that(lambda: two.moves("lost") > moved, "runs move")
            load.await_steps(1)
            two.net.heal()
            two.await_states("ready", "ready")
    lab_results.note("network", "two workers, cut off in turn", len(turns), f"{load}; none lost without a word or done twice")


def test_a_worker_that_is_stopped_and_cut_off_again_and_again(two):
    """Each time it wakes with operations that were reported as failed."""
    with two.load() as load:
        for _ in range(2):
            two.workers["worker1"].signal(signal.SIGSTOP)
            time.sleep(0.2)  # operations arrive
            two.net.partition("server", "worker1")
            two.await_that(lambda: two.row_of("worker1")["state"] == "dead", "the worker is missed")
            two.workers["worker1"].signal(signal.SIGCONT)
            load.await_steps(1)
            two.net.heal()
            two.await_states("ready", "ready")
    lab_results.note("network", "a worker that is stopped, cut off, and wakes", 2,
                     f"{load}; none lost without a word or done twice")
