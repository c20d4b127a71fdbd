"""Two servers with one Redis and joined workers, under the load of the ledger: kill -9 of the leader or of the standby at
random moments, and SIGSTOP of the leader until the other one leads, then SIGCONT. No acknowledged operation may be lost or
done twice. TUFT_TAKEOVER_ROUNDS and TUFT_CRASH_SEED as in test_crash.py."""
import os
import random
import signal
import statistics
import threading
import time

import pytest

import lab_results
import ledger
import redis_server
from joining import certificates  # noqa: F401
from lives import START_AGAIN_SECONDS
from pair import Pair
from raw_client import RawClient
from test_crash import SEED, Crashes
from tuft_server import alive, wait_until

ROUNDS = int(os.environ.get("TUFT_TAKEOVER_ROUNDS", "4"))
KILLS = ("leader", "leader", "standby", "stop")

pytestmark = pytest.mark.skipif(redis_server.MISSING is not None, reason=str(redis_server.MISSING))


class PairLives:
    """The interface of Lives for the servers of a pair: `start` returns the address of whichever leads."""

    def __init__(self, pair):
        self.pair, self.leader, self.takeovers = pair, 0, []
        self.persistence = {"mode": "TAKEOVER"}

    @property
    def server(self):
        return self.pair.servers[self.leader]

    @property
    def other(self):
        return 1 - self.leader

    def start(self):
        if self.pair.servers[0] is None:
            self.pair.start()
            self.pair.join_worker()
            self.pair.join_worker()
        wait_until(lambda: self.pair.ready(self.leader), START_AGAIN_SECONDS, "a worker serves")
        if not alive(self.pair.servers[self.other].process.pid):
            self.pair.spawn(self.other)
            self.pair.await_role(self.other, "standby")
        return self.pair.url(self.leader)

    def take_over(self, began):
        former, self.leader = self.leader, self.other
        self.takeovers.append(self.pair.await_takeover(self.leader, began))
        return former

    def kill_leader(self):
        began = time.monotonic()
        self.pair.kill(self.leader)
        self.take_over(began)

    def kill_standby(self):
        self.pair.kill(self.other)

    def stop_leader(self):
        """It sleeps until the other one leads, and wakes up with requests and answers of workers in its hands."""
        stopped = self.server.process.pid
        os.kill(stopped, signal.SIGSTOP)
        former = self.take_over(time.monotonic())
        os.kill(stopped, signal.SIGCONT)
        assert self.pair.gone(former) == 3, self.pair.logs[-1]


class Client(ledger.Client):
    """A leader that wakes up after its lease may still say that it failed, before it ends: that is an end, too."""

    tried_again = False

    def request(self, *arguments, **keywords):
        answer = RawClient.request(self, *arguments, **keywords)
        if answer.status >= 500 and self.store_away.is_set():
            raise ConnectionResetError(f"the server ends: {answer}")
        return answer


class Takeovers(Crashes):
    kinds = KILLS

    def connect(self, key):
        return Client(self.url, key, self.store_away)

    def kill(self, kill):
        if kill == "stop":
            self.store_away.set()
        {"leader": self.lives.kill_leader, "standby": self.lives.kill_standby, "stop": self.lives.stop_leader}[kill]()
        if kill == "standby":
            time.sleep(self.chance.uniform(0.0, 0.5))

    def after_restart(self):
        self.store_away.clear()
        super().after_restart()


@pytest.fixture
def lives(certificates, model_dir, tmp_path):
    # Workers that keep nothing, because the ledger knows what is lost: runs go back, as after a restart.
    pair = Pair(tmp_path, certificates, model_dir, keep=0, limits={"runs_per_user_max": 1000, "unnamed_samplers_per_run_max": 1000})
    made = PairLives(pair)
    yield made
    pair.end()


@pytest.mark.timeout(300 + 60 * ROUNDS)
def test_takeovers_at_random_moments_lose_nothing_and_repeat_nothing(lives):
    crashes = Takeovers(lives, random.Random(f"{SEED} takeover"))
    done = 0
    try:
        for done in range(1, ROUNDS + 1):
            crashes.round()
    except BaseException:
        print(f"round {done} of TUFT_CRASH_SEED={SEED}; {crashes}")
        for server in lives.pair.servers:
            print("\n".join(line[:400] for line in server.lines[-30:]))
        raise
    print(crashes)
    kills = ", ".join(f"{count} x {kill}" for kill, count in crashes.counts.items())
    steps = sum(trainer.acknowledged_steps for trainer in crashes.trainers)
    times = sorted(lives.takeovers)
    took = f"; takeover: median {statistics.median(times):.2f} s, longest {times[-1]:.2f} s" if times else ""
    print(f"{kills}, {steps} acknowledged steps{took}")
    lab_results.note("takeover", f"kill -9 and SIGSTOP of two servers at random moments: {kills}", ROUNDS,
                     f"{steps} acknowledged steps, none lost or done twice (seed {SEED}){took}")
    assert steps > 0, "no step was acknowledged"
