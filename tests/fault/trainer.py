"""A client that trains one run in pipelines, saves, loads, deletes and samples until its server dies, and checks the
answers of a live server."""
import dataclasses
import time

from tinker.proto import tinker_public_pb2 as pb

from ledger import CUT, Op, final, promise, take
from raw_client import forward_backward
from tuft_server import MODEL

TOKENS = (72, 101, 108, 108, 111, 32, 116, 117)
TARGETS = (101, 108, 108, 111, 32, 116, 117, 102)
RATE = 2e-3
PATIENCE = 60
LATEST = "latest"  # this name is overwritten again and again
SAMPLERS_OF_A_SESSION = 40


@dataclasses.dataclass
class Anchor:
    """The state to which the run goes back after a restart."""
    seq: int
    name: str
    step: int | None  # None: unknown, because an operation before it failed
    is_save: bool = True


class Trainer:
    def __init__(self, number, key, chance, curve, usage, connect):
        self.number, self.key, self.chance, self.connect = number, key, chance, connect
        self.curve, self.usage = curve, usage
        self.session, self.models, self.errors, self.was_cut = None, 0, [], False
        self.samplers = []  # (id, checkpoint name or "", the answer's tokens)
        self.samples, self.sampler_numbers = [], 0
        self.sampling_session, self.in_session, self.finishing = None, 0, []
        self.ended_samplers = []
        self.acknowledged_steps = self.loads = self.lost_runs = 0
        self.unloaded, self.deleted_paths = [], set()
        self.begin_run()

    # -- the ledger of one run

    def begin_run(self):
        self.model, self.creation = None, None
        self.ops, self.undone = [], []
        self.next_seq, self.names = 1, 0
        self.step, self.passes = 0, 0  # None: unknown
        self.anchors = []
        self.told = self.unloading = False

    def saved(self, kind):
        """Returns the newest acknowledged save of each name."""
        return {op.name: op for op in self.ops if op.kind == kind and op.name and op.ok}

    @property
    def anchor(self):
        return self.anchors[-1] if self.anchors else None

    def add_anchor(self, anchor):
        """A save replaces an earlier save of the same name."""
        if anchor.is_save:
            self.anchors = [one for one in self.anchors if one.name != anchor.name]
        self.anchors.append(anchor)

    def note(self, kind, **more):
        ahead = sum(op.kind == "step" and op.answer is None for op in self.ops)
        op = Op(kind, seq=self.next_seq, step=None if self.step is None else self.step + ahead, **more)
        self.next_seq += 1
        self.ops.append(op)
        return op

    def submit(self, raw, kind, name="", again=None):
        """Records the operation before sending it, because the server may die at any moment."""
        op = again or self.note(kind, name=name)
        body = {"model_id": self.model, "seq_id": op.seq}
        if kind in ("backward", "forward"):
            self.usage.sent("training", len(TOKENS))
            answer = raw.train(self.model, op.seq, forward_backward(self.model, op.seq, TOKENS, TARGETS,
                                                                    forward_only=kind == "forward"))
        elif kind == "step":
            answer = raw.optim(self.model, op.seq, learning_rate=RATE)
        elif kind == "save":
            self.usage.sent("checkpoint", 1)
            answer = raw.post("save_weights", {**body, "path": op.name, "overwrite": op.name == LATEST,
                                               "type": "save_weights"})
        elif kind == "save_sampler":
            self.usage.sent("checkpoint", 1)
            how = {"path": op.name} if op.name else {"sampling_session_seq_id": self.fresh_number()}
            answer = raw.post("save_weights_for_sampler", {**body, **how, "type": "save_weights_for_sampler"})
        else:
            answer = raw.post("load_weights", {**body, "path": self.path(op.name), "optimizer": True,
                                               "type": "load_weights"})
        if again is None:
            take(raw, op, answer)
        return op if again is None else answer

    def path(self, name, kind="weights"):
        return f"tinker://{self.model}/{kind}/{name}"

    def fresh_name(self):
        self.names += 1
        return f"n{self.names}"

    def fresh_number(self):
        """Returns a sampling_session_seq_id that was not used in this session."""
        self.sampler_numbers += 1
        return self.sampler_numbers

    # -- while the server lives

    def live(self, stop):
        raw = self.connect(self.key)
        try:
            while not stop.is_set():
                self.turn(raw)
        except CUT:
            self.was_cut = True
        except BaseException as error:  # the main thread raises it
            self.errors.append(error)

    def turn(self, raw):
        if self.model is None and not self.create(raw):
            return
        if self.told or self.step is None:
            return self.go_back(raw)
        pipeline = []
        for _ in range(self.chance.randint(1, 3)):
            pipeline += [("backward", ""), ("step", "")]
        if self.chance.random() < 0.6 or not self.anchors:
            name = self.fresh_name() if self.chance.random() < 0.7 else LATEST
            pipeline.insert(self.chance.choice([0, len(pipeline)]), ("save", name))
        if self.chance.random() < 0.3:
            pipeline.append(("save_sampler", self.chance.choice(["", self.fresh_name()])))
        if self.chance.random() < 0.3:
            pipeline.append(("forward", ""))
        for op in [self.submit(raw, kind, name) for kind, name in pipeline]:
            self.heard(op, final(raw, op))
        if not self.told:
            self.look_around(raw)

    def create(self, raw):
        if self.session is None:
            self.session = raw.session()
        if self.creation is None:
            self.models += 1
        self.creation = Op("create", seq=self.models)
        take(raw, self.creation, raw.post("create_model", {
            "session_id": self.session, "model_seq_id": self.models, "base_model": MODEL,
            "lora_config": {"rank": 4, "seed": 11}, "type": "create_model"}))
        self.creation.answer = final(raw, self.creation)
        if self.creation.ok:
            self.model = self.creation.fields["model_id"]
            return True
        promise("worker" in self.creation.error, "a failed creation names the worker", self.creation)
        self.creation = None
        return False

    def heard(self, op, answer):
        """Handles the first final answer of a server that did not die, and updates the state of the run."""
        op.answer = answer
        promise(answer.status == 200, "no result is lost while the server lives", op, answer)
        if not op.ok:
            promise(any(word in op.error for word in ("worker", "restarted", "used up")), "the error has a reason", op)
            self.told, self.step = True, None
            return
        if op.kind in ("backward", "forward"):
            if self.step is not None:
                self.curve.loss(self.step, answer, op, self.model)
            self.passes += op.kind == "backward"
        elif op.kind == "step":
            self.heard_step(op)
        elif op.kind == "save":
            promise(op.fields["path"] == self.path(op.name), "a save returns its path", op)
            op.step = self.step
            self.add_anchor(Anchor(op.seq, op.name, self.step))
        elif op.kind == "save_sampler" and not op.name:
            self.samplers.append([op.fields["sampling_session_id"], "", None])

    def heard_step(self, op):
        metrics = op.fields["metrics"]
        if self.step is not None:
            promise(metrics["optimizer_step"] == self.step + 1, "each step is done once", op, "expected", self.step + 1)
            promise(self.passes == 1, "the ledger counts one pass for each step", op)
            self.curve.norm(self.step, metrics, op, self.model)
            self.step += 1
            self.acknowledged_steps += 1
        self.passes = 0

    def do(self, raw, kind, name=""):
        op = self.submit(raw, kind, name)
        op.answer = final(raw, op)
        promise(op.answer.status == 200, "no result is lost while the server lives", op, op.answer)
        return op

    def go_back(self, raw):
        """After an error of a server that did not die: checks the state of the run, then loads a known checkpoint."""
        first = self.ops and next((i for i, op in enumerate(self.ops) if op.answer and not op.ok), len(self.ops))
        nothing_since = not any(op.ok and op.kind in ("backward", "step") for op in self.ops[first:])
        if self.anchor and self.anchor.step is not None and nothing_since:
            # A run whose save failed may have lost nothing, because its worker came back.
            only_saves = all(op.ok or op.kind in ("save", "save_sampler") for op in self.ops[first:] if op.answer)
            self.expect_at(raw, self.anchor.step, or_at=self.newest_step() if only_saves else None)
        saved = self.saved("save")
        good = [anchor for anchor in self.anchors if anchor.step is not None and
                anchor.name in saved and saved[anchor.name].deleted is None]
        if not good:
            self.lost_runs += 1
            return self.begin_run()
        deadline = time.monotonic() + PATIENCE
        while True:
            op = self.do(raw, "load", good[-1].name)
            if op.ok:
                break
            promise(time.monotonic() < deadline, "a worker comes back", op)
        self.add_anchor(Anchor(op.seq, good[-1].name, good[-1].step, is_save=False))
        self.loads += 1
        self.step, self.passes, self.told = good[-1].step, 0, False

    def newest_step(self):
        """Returns the last step that was acknowledged, or None."""
        return next((op.fields["metrics"]["optimizer_step"] for op in reversed(self.ops) if op.kind == "step" and op.ok),
                    None)

    def expect_at(self, raw, step, may_fail=None, or_at=None):
        """Checks that the weights are those of `step`, or of `or_at`. The server may first report that the run went
        back."""
        deadline = time.monotonic() + PATIENCE
        while True:
            op = self.do(raw, "forward")
            if op.ok:
                break
            promise(may_fail is None or may_fail(op), "one warning, and no other error", op)
            promise(time.monotonic() < deadline, "a worker comes back", op)
        moves = self.steps_of_moves(raw, step)
        at = next((one for one in [step, or_at, *moves] if self.curve.is_at(one, op.answer)), step)
        self.curve.loss(at, op.answer, "the loss after the recovery", op, self.model, "or saved by the server at", moves)

    def steps_of_moves(self, raw, step):
        """Returns the steps since `step` at which the server may have saved the run, to move it to another worker. It goes
        back to that save, of which its client learns only when it lists the checkpoints."""
        listed = raw.get(f"training_runs/{self.model}/checkpoints").json["checkpoints"]
        if not any("/moved-" in one["checkpoint_id"] for one in listed):
            return []
        return [op.fields["metrics"]["optimizer_step"] for op in self.ops
                if op.kind == "step" and op.ok and op.fields["metrics"]["optimizer_step"] > step]

    def look_around(self, raw):
        """Samples, publishes and deletes between pipelines."""
        saved = [name for name, op in self.saved("save_sampler").items() if op.deleted is None]
        if saved and self.chance.random() < 0.3:
            path = self.path(self.chance.choice(saved), "sampler_weights")
            made = raw.post("create_sampling_session", {
                "session_id": self.session_of_samplers(raw), "sampling_session_seq_id": self.fresh_number(),
                "model_path": path, "type": "create_sampling_session"})
            promise(made.status == 200, "a sampler is made", made)
            self.samplers.append([made.json["sampling_session_id"], path, None])
        if self.samplers and self.chance.random() < 0.5:
            self.sample(raw, self.samplers[-1], self.chance.randint(1, 4))
        if self.chance.random() < 0.1:
            self.publish_one(raw)
        if self.chance.random() < 0.2:
            self.delete_one(raw, *self.chance.choice([("save", "weights"), ("save_sampler", "sampler_weights")]))
        if len(self.ops) > 200 and self.chance.random() < 0.1:
            self.unload(raw)

    def session_of_samplers(self, raw):
        """Returns the session of the samplers that this trainer makes itself. It is finished after a while, and another
        one begins, because the samplers of a user are limited (limits.samplers_per_user_max)."""
        if self.sampling_session and self.in_session == SAMPLERS_OF_A_SESSION:
            self.finishing.append(self.sampling_session)
            self.sampling_session = None
            self.ended_samplers = [one[0] for one in self.samplers if one[1]]
            self.samplers = [one for one in self.samplers if not one[1]]
            self.finish_sessions(raw)
        if self.sampling_session is None:
            self.sampling_session, self.in_session = raw.session(), 0
        self.in_session += 1
        return self.sampling_session

    def finish_sessions(self, raw, again=False):
        """Finishes sessions. One that was cut before its answer may be gone when it is finished again."""
        while self.finishing:
            answer = raw.post(f"sessions/{self.finishing[-1]}/finish", {})
            gone = answer.status == 404 and (again or raw.tried_again)
            promise(answer.status == 200 or gone, "a session is finished", self.finishing[-1], answer)
            self.finishing.pop()

    def delete_one(self, raw, kind, folder):
        saved = {name: op for name, op in self.saved(kind).items() if op.deleted is None}
        if not saved:
            return
        # Often the newest, so that the run goes back to an earlier one.
        newest = max(saved, key=lambda one: saved[one].seq)
        name = newest if self.chance.random() < 0.4 else self.chance.choice(list(saved))
        saved[name].deleted = False
        self.deleted_paths.add(self.path(name, folder))
        answer = raw.request("DELETE", f"/api/v1/training_runs/{self.model}/checkpoints/{folder}/{name}")
        # The first attempt may have deleted it without making the deletion durable.
        done = answer.status in (200, 204) or (answer.status == 404 and raw.tried_again)
        promise(done, "a checkpoint is deleted", name, answer)
        saved[name].deleted = True

    def unload(self, raw):
        op, self.unloading = Op("unload", name=self.model), True
        take(raw, op, raw.post("unload_model", {"model_id": self.model, "type": "unload_model"}))
        op.answer = final(raw, op)
        promise(op.answer.status == 200, "no result is lost while the server lives", op)
        if op.ok:
            self.unloaded.append(self.model)
            self.begin_run()
        else:
            self.unloading = False
            promise("worker" in op.error, "a failed unload names the worker", op)
            self.told, self.step = True, None

    def publish_one(self, raw):
        saved = [op for op in self.saved("save").values() if op.deleted is None and op.name != LATEST]
        if saved:
            op = self.chance.choice(saved)
            answer = raw.request("POST", f"/api/v1/training_runs/{self.model}/checkpoints/weights/{op.name}/publish")
            promise(answer.status in (200, 204), "a checkpoint is made public", op, answer)
            op.public = True

    def sample(self, raw, sampler, count=1):
        """Samples greedily, so that a sampler always returns the same tokens."""
        ops = []
        for _ in range(count):
            op = Op("sample", seq=len(self.samples) + 1, name=sampler[0])
            ops.append(op)
            self.samples.append(op)
            self.usage.sent("sampling_prefill", 3)
            self.usage.sent("sampling_sample", 4)
            take(raw, op, raw.sample(sampler[0], op.seq, temperature=0.0))
        for op in ops:
            op.answer = final(raw, op)
            if op.ok:
                tokens = pb.SampleResponse.FromString(op.answer.body).sequences[0].tokens
                sampler[2] = sampler[2] or tokens
                promise(sampler[2] == tokens, "a sampler keeps its weights", op, sampler)
            else:
                promise(op.answer.status == 200 and "worker" in op.error, "a failed sample names the worker", op)
