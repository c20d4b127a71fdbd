"""Slow and lossy links, and clocks that are wrong: the load goes on, and no worker that lives is declared dead."""
import time

import pytest
from joining import Trainer
from tinker.proto import tinker_public_pb2 as pb

import faulty_disk
import hosts
import lab_results
from certificates import make_certificates
from cluster import LAB, SERVER_ADDRESS, Cluster, certificates, one  # noqa: F401
from raw_client import forward_backward
from trainer import TOKENS

pytestmark = pytest.mark.skipif(hosts.MISSING is not None, reason=str(hosts.MISSING))
DAY = 86_400
LINKS = {"a round trip of 50 ms": {"round_trip_ms": 50}, "a round trip of 200 ms": {"round_trip_ms": 200},
         "1 Mbit/s": {"mbit": 1}}


def rate(load, steps):
    """Returns the trained tokens a second while each client makes so many steps."""
    begin, before = time.monotonic(), load.steps
    load.await_steps(steps)
    return (load.steps - before) * len(TOKENS) / (time.monotonic() - begin)


def assert_answering(cluster):
    """All the time, all workers were taken for alive."""
    assert cluster.ended() == 0, cluster.rows()
    silent = [line for line in cluster.server.log.splitlines() if "worker.silent" in line]
    assert not silent, silent


def assert_undisturbed(cluster, load):
    assert load.losses == 0, cluster.rows()
    assert_answering(cluster)


@pytest.mark.parametrize("host", ["worker1", "client"] if LAB else ["worker1"])
def test_a_slow_link_only_slows_down(one, host):
    with one.load() as load:
        fast = rate(load, 10)
        for what, link in LINKS.items():
            one.net.link(host, **link)
            slow = rate(load, 4)
            maker = f" (delayed by {hosts.DELAYS})" if "round_trip_ms" in link else ""
            lab_results.note("network", f"the link of the {host.rstrip('1')} has {what}{maker}", 1,
                             f"{slow:.0f} tokens/s, {fast:.0f} without; no worker was taken for dead")
            print(f"{host}, {what}: {slow:.0f} tokens/s, {fast:.0f} without")
        one.net.link(host)
        load.await_steps(4)
    assert_undisturbed(one, load)


def test_a_large_request_fits_through_a_narrow_link(one):
    """It takes longer than the lease, and the worker lives all the same."""
    run = Trainer(one.server)
    large = pb.ForwardBackwardRequest.FromString(
        forward_backward(run.model, 1, [7] * 250, [8] * 250).SerializeToString())
    large.data.extend([large.data[0]] * (600_000 // large.ByteSize()))
    one.net.link("worker1", mbit=1)
    begin = time.monotonic()
    submitted = run.client.train(run.model, 1, large)
    trained = run.client.result(submitted)
    seconds = time.monotonic() - begin
    assert "metrics" in trained.json, f"{trained}\n{one.logs()}"
    assert seconds > one.lease
    assert_answering(one)
    lab_results.note("network", f"a request of {large.ByteSize() // 1000} kB to a worker behind 1 Mbit/s", 1,
                     f"{seconds:.1f} s, the lease is {one.lease} s; the worker was not taken for dead")


@pytest.fixture
def patient(tmp_path, certificates):
    """A server with a lease that is long enough for a packet that is lost a few times in a row."""
    with Cluster(tmp_path, certificates, lease=10) as cluster:
        yield cluster


def test_lost_packets_of_one_direction_only_slow_down(patient):
    with patient.load() as load:
        fast = rate(load, 10)
        for sender, receiver in (("worker1", "server"), ("server", "worker1"), ("client", "server"), ("server", "client")):
            for one_of in (20, 5) if LAB else (5,):
                patient.net.drop(sender, receiver, one_of)
                slow = rate(load, 3)
                patient.net.heal()
                print(f"1 of {one_of} from {sender} to {receiver} is lost: {slow:.0f} tokens/s, {fast:.0f} without")
                lab_results.note("network", f"one of {one_of} packets from {sender} to {receiver} is lost", 1,
                                 f"{slow:.0f} tokens/s, {fast:.0f} without; no worker was taken for dead")
    assert_undisturbed(patient, load)


needs_clock = pytest.mark.skipif(faulty_disk.MISSING is not None, reason=str(faulty_disk.MISSING))


@pytest.fixture
def clocks(tmp_path):
    """The clocks of two hosts. The certificates are valid on all the days that they show."""
    made = {}
    for host in ("server", "worker1"):
        (tmp_path / host).mkdir()
        made[host] = faulty_disk.FaultyDisk(tmp_path / host, tmp_path / host / "nothing")
    return made


def cluster_with(clocks, folder):
    clocks["worker1"].set_clock(-2 * DAY)
    valid = make_certificates(folder / "of_days", [SERVER_ADDRESS], days=4, env=clocks["worker1"].environment)
    clocks["worker1"].set_clock(0)
    return Cluster(folder, valid, env={host: clock.environment for host, clock in clocks.items()})


@needs_clock
def test_clocks_that_differ_and_jump(clocks, tmp_path):
    """A lease is counted by clocks that do not jump."""
    clocks["worker1"].set_clock(DAY)
    with cluster_with(clocks, tmp_path) as cluster:
        with cluster.load() as load:
            for host, ahead in (("worker1", DAY), ("worker1", -DAY), ("server", DAY), ("server", -DAY), ("server", 0)):
                clocks[host].set_clock(ahead)
                load.await_steps(3)
            assert_undisturbed(cluster, load)
            cluster.net.partition("server", "worker1")
            cluster.await_states()
            cluster.net.heal()
            cluster.await_states("ready")  # a day behind
    lab_results.note("network", "the clocks of server and worker differ by up to two days, and jump", 5,
                     f"{load}; no worker was taken for dead; it joins again")


@needs_clock
def test_a_worker_to_whose_clock_the_certificate_is_not_yet_valid_says_so(clocks, tmp_path):
    with cluster_with(clocks, tmp_path) as cluster:
        clocks["worker1"].set_clock(-3 * DAY)
        cluster.net.partition("server", "worker1")
        cluster.await_states()
        cluster.net.heal()
        cluster.workers["worker1"].says("certificate is not yet valid")
        clocks["worker1"].set_clock(0)
        cluster.await_states("ready")
