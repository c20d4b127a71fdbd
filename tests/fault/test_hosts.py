"""The faults of tests/fault/hosts.py are real: what the tests of networks rely on."""
import socket
import threading
import time

import pytest

import hosts

pytestmark = pytest.mark.skipif(hosts.MISSING is not None, reason=str(hosts.MISSING))
LONG = 0.5  # no packet takes so long here


@pytest.fixture(scope="module")
def net():
    with hosts.Network("one", "two") as made:
        yield made


@pytest.fixture(autouse=True)
def healed(net):
    yield
    net.heal()
    net.link("one")


class Echo:
    """A server at `two` that sends back what it gets, one connection after the other."""

    def __init__(self, net):
        with net["two"].entered():
            self.listener = socket.create_server((net["two"].address, 0))
        self.address = self.listener.getsockname()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            connection, _ = self.listener.accept()
            try:
                while received := connection.recv(65536):
                    connection.sendall(received)
            except OSError:
                pass


@pytest.fixture
def line(net):
    """A connection from `one` to an echo at `two`."""
    echo = Echo(net)
    with net["one"].entered(), socket.create_connection(echo.address, timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


def ask(line, size=1, limit=10):
    """Returns the seconds until all came back."""
    line.settimeout(limit)
    begin = time.monotonic()
    sender = threading.Thread(target=line.sendall, args=(bytes(size),))
    sender.start()
    while size > 0:
        size -= len(line.recv(65536))
    sender.join()
    return time.monotonic() - begin


def test_hosts_reach_each_other(line):
    assert ask(line) < LONG and ask(line, 1 << 20) < 5


def test_a_partition_stops_both_directions_and_heals(net, line):
    net.partition("one", "two")
    with pytest.raises(TimeoutError):
        ask(line, limit=LONG)
    net.heal("one", "two")
    line.settimeout(10)
    assert line.recv(1)


def test_one_direction_is_lost(net):
    with net["two"].entered():
        at_two = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        at_two.bind((net["two"].address, 0))
        at_two.settimeout(LONG)
    with net["one"].entered():
        at_one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        at_one.bind((net["one"].address, 0))
        at_one.settimeout(LONG)
    net.drop("one", "two")
    at_two.sendto(b"passes", at_one.getsockname())
    assert at_one.recv(10) == b"passes"
    at_one.sendto(b"is lost", at_two.getsockname())
    with pytest.raises(TimeoutError):
        at_two.recv(10)
    net.heal()
    net.drop("one", "two", one_of=5)
    for _ in range(250):
        at_one.sendto(b"x", at_two.getsockname())
    came = 0
    with pytest.raises(TimeoutError):
        while at_two.recv(10):
            came += 1
    assert came == 200
    at_one.close()
    at_two.close()


def test_a_reset_ends_a_connection(net, line):
    net.reset("one", "two")
    with pytest.raises(ConnectionResetError):
        ask(line)


def test_a_router_that_was_restarted_knows_no_connection(net, line):
    assert ask(line) < LONG
    net.restart_router()
    with pytest.raises(TimeoutError):
        ask(line, limit=4 * LONG)
    with net["one"].entered(), socket.create_connection(Echo(net).address, timeout=10) as fresh:
        ask(fresh)


@pytest.mark.parametrize("milliseconds", [50, 200])
def test_a_round_trip_takes_its_time(net, line, milliseconds):
    net.link("one", round_trip_ms=milliseconds)
    ask(line)
    taken = min(ask(line) for _ in range(5))
    assert milliseconds / 1000 <= taken < milliseconds / 1000 + LONG, f"{taken} s with {hosts.DELAYS}"
    net.link("one")
    assert min(ask(line) for _ in range(5)) < milliseconds / 1000


def test_a_narrow_link_takes_its_time(net, line):
    net.link("one", mbit=1)
    assert ask(line, 100_000) > 0.6  # 0.8 s, less what the link takes at once
