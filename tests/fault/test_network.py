"""Workers and clients on other hosts, and networks that fail: nothing that was acknowledged is lost without its client
being told, nothing is done twice, and nothing that lives is declared dead."""
import time

import pytest

import hosts
import lab_results
from certificates import make_certificates
from cluster import SERVER_ADDRESS, Cluster

pytestmark = pytest.mark.skipif(hosts.MISSING is not None, reason=str(hosts.MISSING))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("tls") / "of_server", [SERVER_ADDRESS])


@pytest.fixture
def one(tmp_path, certificates):
    with Cluster(tmp_path, certificates) as cluster:
        yield cluster


@pytest.fixture
def two(tmp_path, certificates):
    with Cluster(tmp_path, certificates, workers=2) as cluster:
        yield cluster


def test_a_cut_shorter_than_the_lease_costs_nothing(one):
    with one.load() as load:
        one.net.partition("server", "worker1")
        time.sleep(one.lease / 3)
        one.net.heal()
        load.await_steps(5)
    assert load.losses == 0 and one.ended() == 0, one.rows()


def test_a_cut_longer_than_the_lease(one):
    with one.load() as load:
        one.net.partition("server", "worker1")
        one.await_states()
        one.net.heal()
        one.await_states("ready")
    print(load)
