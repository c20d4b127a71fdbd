"""Kills the server, its workers, both, a starting server, or Redis with SIGKILL at random moments under load. No
acknowledged operation may be lost or done twice. TUFT_CRASH_ROUNDS=100 runs more rounds, TUFT_CRASH_SEED=<number>
repeats the choices of a run (but not its timing)."""
import datetime
import os
import random
import threading
import time

import pytest

import lab_results
import redis_server
from ledger import Broken, Client, Curve, Usage
from lives import Lives
from raw_client import RawClient
from recovery import recover
from trainer import Trainer
from tuft_server import ALICE, BOB, wait_until

ROUNDS = int(os.environ.get("TUFT_CRASH_ROUNDS", "6"))
SEED = int(os.environ.get("TUFT_CRASH_SEED", random.SystemRandom().randrange(10**6)))
HARMLESS = ("worker", "store", "standby")  # the server that clients talk to goes on
KILLS = {"FILE": ("server", "server", "both", "worker", "start"),
         "REDIS": ("server", "both", "worker", "start", "store")}


@pytest.fixture(params=["FILE", "REDIS"])
def lives(request, model_dir, tmp_path):
    if request.param == "REDIS" and redis_server.MISSING:
        pytest.skip(redis_server.MISSING)
    made = Lives(request.param, model_dir, tmp_path)
    yield made
    made.end()


class Crashes:
    kinds = None  # of kills; by default those of the store

    def __init__(self, lives, chance):
        self.lives, self.chance, self.curve = lives, chance, Curve()
        self.kills, self.store_away = self.kinds or KILLS[lives.persistence["mode"]], threading.Event()
        self.url = lives.start()
        self.usage = {key: Usage() for key in (ALICE, BOB)}
        self.trainers = [Trainer(number, key, random.Random(chance.random()), self.curve, self.usage[key], self.connect)
                         for number, key in enumerate((ALICE, BOB, ALICE, BOB))]
        hour = datetime.datetime.now(datetime.timezone.utc).replace(minute=0, second=0, microsecond=0)
        self.window = [(hour + datetime.timedelta(hours=hours)).strftime("%Y-%m-%dT%H:00:00Z") for hours in (-1, 48)]
        self.counts = dict.fromkeys(self.kills, 0)

    def connect(self, key):
        return Client(self.url, key, self.store_away)

    def round(self):
        kill, stop = self.chance.choice(self.kills), threading.Event()
        self.counts[kill] += 1
        threads = [threading.Thread(target=trainer.live, args=(stop,)) for trainer in self.trainers]
        for thread in threads:
            thread.start()
        time.sleep(self.chance.uniform(0.05, 1.5))  # the random moment
        self.kill(kill)
        stop.set()
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive(), f"a client hangs; round {self.counts}"
        self.raise_errors(kill)
        if kill == "start":
            self.lives.start_and_kill(self.chance.uniform(0.0, 0.4))
        if kill not in ("worker", "store"):
            self.url = self.lives.start()
        if kill not in HARMLESS:
            self.after_restart()
        self.check_usage()

    def kill(self, kill):
        if kill == "worker":
            self.lives.kill_worker()
            time.sleep(self.chance.uniform(0.0, 1.5))  # clients continue with the new worker
        elif kill == "store":
            self.store_away.set()
            self.lives.kill_store(self.chance.uniform(0.0, 0.7))
            self.wait_until_ready()
            self.store_away.clear()
        elif kill in ("server", "start"):
            self.lives.kill_server()
        else:
            self.lives.kill_both(worker_first=self.chance.random() < 0.5)

    def wait_until_ready(self):
        raw = RawClient(self.url, ALICE)
        wait_until(lambda: raw.get("healthz").json["ready"], 30, "ready again")

    def raise_errors(self, kill):
        for trainer in self.trainers:
            if trainer.errors:
                raise trainer.errors[0]
            if kill in HARMLESS and trainer.was_cut:
                raise Broken(f"the server did not answer without its {kill}")

    def after_restart(self):
        keys = {ALICE: BOB, BOB: ALICE}
        for trainer in self.trainers:
            recover(trainer, self.connect(trainer.key), self.connect(keys[trainer.key]))

    def check_usage(self):
        return {key: usage.check(RawClient(self.url, key), *self.window) for key, usage in self.usage.items()}

    def __str__(self):
        steps = sum(trainer.acknowledged_steps for trainer in self.trainers)
        operations = sum(len(trainer.ops) + len(trainer.undone) for trainer in self.trainers)
        return f"seed {SEED}: kills {self.counts}, {steps} steps, {operations} operations in the last runs' ledgers"


@pytest.mark.timeout(300 + 30 * ROUNDS)
def test_killed_at_random_moments_nothing_acknowledged_is_lost_or_done_twice(lives):
    crashes = Crashes(lives, random.Random(f"{SEED} {lives.persistence['mode']}"))
    done = 0
    try:
        for done in range(1, ROUNDS + 1):
            crashes.round()
            if done % 50 == 0:
                print(f"round {done}: {crashes}", flush=True)
    except BaseException:
        print(f"round {done} of TUFT_CRASH_SEED={SEED}; {crashes}")
        print("\n".join(line[:400] for line in lives.server.lines[-30:]))
        raise
    print(crashes)
    kills = ", ".join(f"{count} x {kill}" for kill, count in crashes.counts.items())
    steps = sum(trainer.acknowledged_steps for trainer in crashes.trainers)
    lab_results.note("crash", f"kill -9 at random moments, {lives.persistence['mode']}: {kills}", ROUNDS,
                     f"{steps} acknowledged steps, none lost or done twice (seed {SEED})")
    assert steps > 0, "no step was acknowledged"
