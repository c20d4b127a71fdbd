"""Kills the server, or breaks the link to its worker, at random moments while clients train. The worker has joined and keeps
what it holds, so nothing may be lost at all: each step is taken once, with the gradient of its pass, and no run goes
back. TUFT_CRASH_ROUNDS=100 runs more rounds, TUFT_CRASH_SEED=<number> repeats the choices of a run."""
import os
import random
import signal
import threading
import time

import pytest

import lab_results
from joining import Worker, await_states, certificates, joined_server  # noqa: F401
from ledger import CUT, Broken, Curve, Op, promise
from link import Link
from raw_client import RawClient, forward_backward
from trainer import RATE, TARGETS, TOKENS
from tuft_server import ALICE, BOB, MODEL

ROUNDS = int(os.environ.get("TUFT_CRASH_ROUNDS", "6"))
SEED = int(os.environ.get("TUFT_CRASH_SEED", random.SystemRandom().randrange(10**6)))
PATIENCE = 60


class Trainer:
    """Trains one run, sends again what was not answered, and submits again what no worker had begun."""

    def __init__(self, url, key, curve):
        self.raw, self.curve = RawClient(url, key, timeout=25), curve
        self.model = self.raw.model(MODEL, seed=11)
        self.seq = self.step = self.again = 0
        self.error = None

    def live(self, stop):
        try:
            while not stop.is_set():
                self.train()
        except BaseException as error:  # the main thread raises it
            self.error = error

    def persist(self, request):
        """Repeats a request until a server answers."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                answer = request()
                if answer.status not in (408, 503):
                    return answer
            except CUT:
                self.raw.connection.close()
                time.sleep(0.02)
            promise(time.monotonic() < end, "an operation ends", self.model, self.seq)

    def submit(self, kind):
        self.seq += 1
        op = Op(kind, seq=self.seq, step=self.step)
        if kind == "backward":
            message = forward_backward(self.model, op.seq, TOKENS, TARGETS)
            answer = self.persist(lambda: self.raw.train(self.model, op.seq, message))
        else:
            answer = self.persist(lambda: self.raw.optim(self.model, op.seq, learning_rate=RATE))
        promise(answer.status in (200, 202), "a submission is accepted", op, answer)
        op.request = answer.json["request_id"]
        return op

    def train(self):
        """One step, in a pipeline."""
        passed, stepped = self.submit("backward"), self.submit("step")
        for op in (passed, stepped):
            op.answer = self.persist(lambda: self.raw.retrieve(op.request, op.in_protobuf))
        lacked_its_pass = not passed.ok
        self.heard(self.done(passed))
        # A step that came to the next server, whose pass no worker had begun, had no gradient and was not taken.
        if lacked_its_pass and stepped.ok and stepped.fields["metrics"]["optimizer_step"] == self.step:
            stepped = self.submit_again(stepped)
        self.heard(self.done(stepped))

    def done(self, op):
        """Submits an operation until it is done, and returns the one that was."""
        while not op.ok:
            promise("before a worker had begun" in op.error, "nothing fails that a worker had begun", op)
            op = self.submit_again(op)
        return op

    def submit_again(self, op):
        self.again += 1
        op = self.submit(op.kind)
        op.answer = self.persist(lambda: self.raw.retrieve(op.request, op.in_protobuf))
        return op

    def heard(self, op):
        if op.kind == "backward":
            self.curve.loss(self.step, op.answer, op)
            return
        metrics = op.fields["metrics"]
        promise(metrics["optimizer_step"] == self.step + 1, "each step is taken once", op, "expected", self.step + 1)
        self.curve.norm(self.step, metrics, op)
        self.step += 1


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
    chance, curve = random.Random(SEED), Curve()
    trainers = [Trainer(cluster.server.url, key, curve) for key in (ALICE, BOB, ALICE, BOB)]
    stop = threading.Event()
    threads = [threading.Thread(target=trainer.live, args=(stop,)) for trainer in trainers]
    faults = {"server": cluster.kill_server, "link": cluster.link.cut}
    counts = dict.fromkeys(faults, 0)
    for thread in threads:
        thread.start()
    try:
        for _ in range(ROUNDS):
            time.sleep(chance.uniform(0.05, 1.5))  # the random moment
            fault = chance.choice(list(faults))
            counts[fault] += 1
            faults[fault]()
            errors = [trainer.error for trainer in trainers if trainer.error]
            if errors:
                raise errors[0]
    except Broken:
        print(f"TUFT_CRASH_SEED={SEED}; {counts}")
        told = [line for line in cluster.server.lines if "resumed" in line or "[worker." in line or "restored" in line]
        print("\n".join(line[:400] for line in told[-20:]))
        raise
    finally:
        stop.set()
        for thread in threads:
            thread.join(120)
    errors = [trainer.error for trainer in trainers if trainer.error]
    if errors:
        raise errors[0]
    steps = sum(trainer.step for trainer in trainers)
    again = sum(trainer.again for trainer in trainers)
    assert steps > ROUNDS and cluster.worker.log.count("base model loaded") == 1
    assert "model.restored" not in cluster.server.log
    what = ", ".join(f"{count} x {fault}" for fault, count in counts.items())
    print(f"seed {SEED}: {what}, {steps} steps, {again} operations that no worker had begun")
    lab_results.note("crash", f"kill -9 of the server of a worker that joined, and broken links, at random moments: {what}",
                     ROUNDS, f"{steps} steps, each taken once, no run went back (seed {SEED})")
