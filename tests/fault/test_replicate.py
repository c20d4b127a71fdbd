"""Kills workers of a base model with `replicate: true` at random moments while clients train. No step may be lost, and
nobody may be told of a loss. TUFT_CRASH_ROUNDS=100 runs more rounds, TUFT_CRASH_SEED=<number> repeats the choices of a
run (but not its timing)."""
import os
import random
import signal
import time

import pytest

import lab_results
from joining import Worker, certificates, joined_server, rows  # noqa: F401
from strict_trainer import StrictLoad
from tuft_server import TuftServer, configuration, init_model, wait_until

ROUNDS = int(os.environ.get("TUFT_CRASH_ROUNDS", "6"))
SEED = int(os.environ.get("TUFT_CRASH_SEED", random.SystemRandom().randrange(10**6)))
ENDED = "the worker of base model"  # an operation whose second worker was killed, too


class LocalWorkers:
    """The server starts one worker, and starts it again, after a pause that doubles each time."""
    count, rounds = 1, min(ROUNDS, 6)

    def __init__(self, folder, certificates):
        model = init_model(folder / "model", "--size", "tiny")
        self.server = TuftServer(folder / "home", configuration(model, model={"replicate": True}, console={"operators": ["alice"]}))

    def begin(self):
        pass

    def kill(self, chance):
        for pid in self.server.worker_pids():
            os.kill(pid, signal.SIGKILL)

    def end(self):
        pass


class JoinedWorkers:
    """Two workers of two, each of which is replaced by another one at once."""
    count, rounds = 2, ROUNDS

    def __init__(self, folder, certificates):
        self.server, port, model = joined_server(folder, certificates, self.count, replicate=True)
        self.start = lambda: Worker(port, certificates, model)
        self.workers = []

    def begin(self):
        self.workers = [self.start() for _ in range(self.count)]

    def kill(self, chance):
        killed = chance.choice(self.workers)
        killed.end()
        self.workers[self.workers.index(killed)] = self.start()

    def end(self):
        for worker in self.workers:
            worker.end()


def serving(server):
    return sum(row["state"] == "ready" for row in rows(server))


@pytest.mark.timeout(300 + 30 * ROUNDS)
@pytest.mark.parametrize("kind", [LocalWorkers, JoinedWorkers])
def test_nothing_is_lost_when_a_worker_dies(kind, tmp_path, certificates):  # noqa: F811
    chance = random.Random(SEED)
    workers = kind(tmp_path, certificates)
    with workers.server as server:
        try:
            workers.begin()
            wait_until(lambda: serving(server) == workers.count, 30, "the workers serve")
            with StrictLoad(server.url, ENDED) as load:
                for _ in range(workers.rounds):
                    time.sleep(chance.uniform(0.05, 1.5))  # the random moment
                    workers.kill(chance)
                    load.raise_errors()
                    if chance.random() < 0.7:
                        wait_until(lambda: serving(server) == workers.count, 60, "the workers serve again")
            replays = server.metric("tuft_training_run_replays_total", result="done")
        finally:
            workers.end()
    made = load.steps
    assert replays > 0 and made > workers.rounds
    assert "rolled back" not in server.log and "weights_rolled_back" not in server.log
    what = "the worker, which the server starts again" if kind is LocalWorkers else "one of two joined workers"
    print(f"seed {SEED}: {workers.rounds} kills, {replays:.0f} replays, {made} steps")
    lab_results.note("workers", f"kill -9 of {what}, at random moments, with replicate: true", workers.rounds,
                     f"{replays:.0f} runs made again what was lost; {made} steps, each taken once, no run went back (seed {SEED})")
