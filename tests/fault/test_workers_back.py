"""Kills the server, or breaks the link to its worker, at random moments while clients train. The worker has joined and keeps
what it holds, so nothing may be lost at all: each step is taken once, with the gradient of its pass, and no run goes
back. TUFT_CRASH_ROUNDS=100 runs more rounds, TUFT_CRASH_SEED=<number> repeats the choices of a run."""
import os
import random
import signal
import time

import pytest

import lab_results
from joining import Worker, await_states, certificates, joined_server  # noqa: F401
from ledger import Broken
from link import Link
from strict_trainer import StrictLoad

ROUNDS = int(os.environ.get("TUFT_CRASH_ROUNDS", "6"))
SEED = int(os.environ.get("TUFT_CRASH_SEED", random.SystemRandom().randrange(10**6)))
NOT_BEGUN = "before a worker had begun"


class Cluster:
    def __init__(self, folder, certificates):
        self.server, port, model = joined_server(folder, certificates)
        self.server.start()
        self.link = Link(port)
        self.worker = Worker(self.link.port, certificates, model)
        await_states(self.server, "ready")
        self.server.arguments[3] = self.server.url.rsplit(":", 1)[1]

    def kill_server(self):
        os.kill(self.server.process.pid, signal.SIGKILL)
        self.server.wait_exit()
        (self.server.home / "tuft_current_server").unlink(missing_ok=True)
        self.server.start()

    def end(self):
        self.worker.end()
        self.link.close()
        self.server.stop()


@pytest.fixture
def cluster(tmp_path, certificates):
    made = Cluster(tmp_path, certificates)
    yield made
    made.end()


@pytest.mark.timeout(300 + 30 * ROUNDS)
def test_nothing_is_lost_when_the_server_dies_or_the_link_breaks(cluster):
    chance = random.Random(SEED)
    faults = {"server": cluster.kill_server, "link": cluster.link.cut}
    counts = dict.fromkeys(faults, 0)
    try:
        with StrictLoad(cluster.server.url, NOT_BEGUN) as load:
            for _ in range(ROUNDS):
                time.sleep(chance.uniform(0.05, 1.5))  # the random moment
                fault = chance.choice(list(faults))
                counts[fault] += 1
                faults[fault]()
                load.raise_errors()
    except Broken:
        print(f"TUFT_CRASH_SEED={SEED}; {counts}")
        told = [line for line in cluster.server.lines if "resumed" in line or "[worker." in line or "restored" in line]
        print("\n".join(line[:400] for line in told[-20:]))
        raise
    steps = load.steps
    assert steps > ROUNDS and cluster.worker.log.count("base model loaded") == 1
    assert "model.restored" not in cluster.server.log
    what = ", ".join(f"{count} x {fault}" for fault, count in counts.items())
    print(f"seed {SEED}: {what}, {steps} steps, {load.again} operations that no worker had begun")
    lab_results.note("workers", f"kill -9 of the server of a worker that joined, and broken links, at random moments: {what}",
                     ROUNDS, f"{steps} steps, each taken once, no run went back (seed {SEED})")
