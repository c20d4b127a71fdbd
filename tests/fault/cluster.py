"""A server, workers that join it, and clients that train, each on a host of its own."""
import contextlib
import datetime
import os
import random
import signal
import threading
import time

import pytest

import joining
from certificates import make_certificates
from hosts import Network
from ledger import CUT, Broken, Client, Curve, Usage
from raw_client import RawClient
from trainer import Trainer
from tuft_server import ALICE, BOB, wait_until

LAB = "TUFT_LAB" in os.environ  # tries more
WORKERS = ("worker1", "worker2")
SECONDS = 60  # for whatever must happen at some time
ANSWER_SECONDS = 5  # without which a client takes its connection for broken
SERVER_ADDRESS = "10.79.1.2"  # of the first host


class Stubborn(Client):
    """A client that repeats a request when the connection breaks or stays silent, as the SDK does."""

    def request(self, *arguments, **keywords):
        end, again = time.monotonic() + SECONDS, False
        while True:
            try:
                answer = super().request(*arguments, **keywords)
                self.tried_again |= again
                return answer
            except CUT:
                if time.monotonic() > end:
                    raise
                again = True
                self.connection.close()
                time.sleep(0.05)


class Cluster:
    """The hosts are `server`, `client` and those of the workers. Within `with`, the calling thread is at the host of the
    server, and all workers serve. `url` is the address for clients."""

    def __init__(self, folder, certificates, workers=1, lease=joining.LEASE, env=None):
        self.net = Network("server", "client", *WORKERS)
        assert self.net["server"].address == SERVER_ADDRESS
        limits = {"runs_per_user_max": 1000, "unnamed_samplers_per_run_max": 1000}
        self.server, self.port, self.model = joining.joined_server(
            folder, certificates, workers, SERVER_ADDRESS, lease, limits=limits)
        self.server.arguments = ["--host", "0.0.0.0", "--port", "0", "--log-level", "info"]
        self.certificates, self.serving, self.lease = certificates, workers, lease
        self.workers, self.ending = {}, []  # by host; and others, which were told to end
        self.env = env or {}  # of the programs, by host
        self.server.env.update(self.env.get("server", {}))

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            stack.callback(self.net.close)
            stack.callback(self.end)
            stack.enter_context(self.net["server"].entered())
            self.start_server()
            for number, host in enumerate(WORKERS[:self.serving], 1):
                self.join(host)
                self.await_states(*["ready"] * number)
            self.undo = stack.pop_all()
        return self

    def __exit__(self, *what):
        self.undo.__exit__(*what)

    def heal(self):
        """Ends all faults of links, and lets stopped workers go on."""
        self.net.heal()
        for worker in [*self.workers.values(), *self.ending]:
            worker.signal(signal.SIGCONT)

    def end(self):
        self.net.heal()
        for worker in [*self.workers.values(), *self.ending]:
            worker.end()
        self.server.stop()

    def start_server(self):
        self.server.start()
        port = self.server.url.rsplit(":", 1)[1]
        self.server.url, self.url = f"http://127.0.0.1:{port}", f"http://{SERVER_ADDRESS}:{port}"

    def join(self, host):
        with self.net[host].entered():
            self.workers[host] = joining.Worker(self.port, self.certificates, self.model, server=SERVER_ADDRESS,
                                                env=self.env.get(host), arguments=["--drain-seconds", "8"])

    def rows(self):
        return joining.rows(self.server)

    def alive(self):
        """Returns the states of the workers that are not gone."""
        return sorted(row["state"] for row in self.rows() if row["state"] != "dead")

    def await_states(self, *wanted):
        self.await_that(lambda: self.alive() == sorted(wanted), f"the workers are {wanted}")

    def await_that(self, condition, what):
        """Waits until the condition is true. An error shows the workers and the logs."""
        try:
            wait_until(condition, SECONDS, what)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.rows()}\n{self.logs()}") from None

    def ended(self):
        """Returns how many workers are gone. One that comes back is another one."""
        return sum(row["state"] == "dead" for row in self.rows())

    def row_of(self, host):
        """Returns the newest row of the worker at this host."""
        return [row for row in self.rows() if row["address"] == self.net[host].address][-1]

    def moves(self, reason):
        return self.server.metric("tuft_training_run_moves_total", reason=reason)

    def logs(self):
        logs = {"server": self.server, **self.workers}
        return "\n".join(f"{name}: {line[:300]}" for name, log in logs.items() for line in log.lines[-25:])

    @contextlib.contextmanager
    def load(self, seed=None, **options):
        """Clients train as long as this lasts. Afterwards all links are healed, every run must train again, and the ledger
        must be right. Once for each cluster, because the ledger counts all that its users ever sent."""
        load = Load(self, random.Random(seed), **options)
        try:
            load.start()
            load.await_steps(2)
            yield load
            self.heal()
            load.await_steps(2)
        except BaseException:
            print(f"{load}\n{self.logs()}")
            raise
        finally:
            self.heal()
            load.stop()
        load.check()


class Load:
    """Trainers of two users at the host `client`, each in a thread."""

    def __init__(self, cluster, chance, trainers=4):
        self.cluster, self.curve, self.stopping = cluster, Curve(), threading.Event()
        self.usage = {key: Usage() for key in (ALICE, BOB)}
        self.trainers = [Trainer(number, key, random.Random(chance.random()), self.curve, self.usage[key], self.connect)
                         for number, key in zip(range(trainers), (ALICE, BOB) * trainers)]
        self.threads = [threading.Thread(target=self.live, args=(one,)) for one in self.trainers]
        hour = datetime.datetime.now(datetime.timezone.utc).replace(minute=0, second=0, microsecond=0)
        self.window = [(hour + datetime.timedelta(hours=hours)).strftime("%Y-%m-%dT%H:00:00Z") for hours in (-1, 48)]

    def connect(self, key):
        client = Stubborn(self.cluster.url, key, threading.Event())
        client.connection.timeout = ANSWER_SECONDS
        return client

    def live(self, trainer):
        with self.cluster.net["client"].entered():
            trainer.live(self.stopping)

    def start(self):
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(2 * SECONDS)
            assert not thread.is_alive(), f"a client hangs\n{self.cluster.logs()}"
        self.raise_errors()

    def raise_errors(self):
        for trainer in self.trainers:
            if trainer.errors:
                raise trainer.errors[0]
            if trainer.was_cut:
                raise Broken(f"the server did not answer for {SECONDS} s\n{self.cluster.logs()}")

    @property
    def steps(self):
        """The acknowledged ones."""
        return sum(one.acknowledged_steps for one in self.trainers)

    @property
    def losses(self):
        """How often a client was told that its run lost something."""
        return sum(one.loads + one.lost_runs + one.told for one in self.trainers)

    def await_steps(self, count):
        """Waits until each client has made so many more steps."""
        goals = {one: one.acknowledged_steps + count for one in self.trainers}

        def reached():
            self.raise_errors()
            return all(one.acknowledged_steps >= goal for one, goal in goals.items())

        wait_until(reached, SECONDS, f"each client makes {count} steps")

    def check(self):
        for key, usage in self.usage.items():
            usage.check(RawClient(self.cluster.server.url, key), *self.window)

    def __str__(self):
        return f"{self.steps} steps, {self.losses} times a client was told of a loss"


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
