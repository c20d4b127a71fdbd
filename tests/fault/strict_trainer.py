"""A client that trains in pipelines and accepts no loss: each step is taken once, with the gradient of its pass."""
import threading
import time

from ledger import CUT, Curve, Op, promise
from raw_client import RawClient, forward_backward
from trainer import RATE, TARGETS, TOKENS
from tuft_server import ALICE, BOB, MODEL, wait_until

PATIENCE = 60


class StrictTrainer:
    """Trains one run whose steps are never lost. It sends again what was not answered, and submits again what failed with
    the text `harmless`, which says that nothing was done."""

    def __init__(self, url, key, curve, harmless):
        self.raw, self.curve, self.harmless = RawClient(url, key, timeout=25), curve, harmless
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
            promise(self.harmless in op.error, f"an error says: {self.harmless}", op)
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


class StrictLoad:
    """Four of them, which train as long as `with` lasts. At its end each must make two more steps."""

    def __init__(self, url, harmless):
        curve = Curve()
        self.trainers = [StrictTrainer(url, key, curve, harmless) for key in (ALICE, BOB, ALICE, BOB)]
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=trainer.live, args=(self.stopping,)) for trainer in self.trainers]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                goals = [trainer.step + 2 for trainer in self.trainers]
                wait_until(lambda: self.steps and all(one.step >= goal for one, goal in zip(self.trainers, goals)),
                           PATIENCE, "each client makes two steps")
        finally:
            self.stopping.set()
            for thread in self.threads:
                thread.join(2 * PATIENCE)
        if kind is None:
            self.raise_errors()

    def raise_errors(self):
        for trainer in self.trainers:
            if trainer.error:
                raise trainer.error

    @property
    def steps(self):
        """How many they have made. Raises the error of one that has failed."""
        self.raise_errors()
        return sum(trainer.step for trainer in self.trainers)

    @property
    def again(self):
        """How many operations were submitted again."""
        return sum(trainer.again for trainer in self.trainers)
