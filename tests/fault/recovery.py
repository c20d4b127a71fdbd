"""Checks the promises of a server that was restarted, from the view of a trainer."""
from ledger import Op, final, promise
from trainer import LATEST, Anchor

DEPENDS_ON_WEIGHTS = ("forward", "backward", "step", "load")


def recover(trainer, raw, other):
    """`other` is a client of another user."""
    trainer.was_cut = False
    for op in trainer.samples:
        settle(raw, op, lambda answer: "Submit it again" in answer.detail)
    recover_samplers(trainer, raw)
    for session in filter(None, (trainer.session, trainer.sampling_session)):
        beat = raw.post("session_heartbeat", {"session_id": session, "type": "session_heartbeat"})
        promise(beat.status == 200, "a session comes back", session, beat)
    for model in trainer.unloaded:
        answer = raw.post("get_info", {"model_id": model, "type": "get_info"})
        promise(answer.status == 404, "an unloaded run stays unloaded", model, answer)
    if trainer.model is None:
        return recover_creation(trainer, raw)
    if trainer.unloading and raw.post("get_info", {"model_id": trainer.model, "type": "get_info"}).status == 404:
        return trainer.begin_run()  # done, although the client did not get the answer
    trainer.unloading = False
    promise(raw.get(f"training_runs/{trainer.model}").status == 200, "a run comes back", trainer.model)
    runs = raw.get(f"sessions/{trainer.session}").json["training_run_ids"]
    promise(trainer.model in runs, "a session knows its runs", trainer.model, runs)
    settle(raw, trainer.creation, lambda answer: False)
    Recovery(trainer, raw).go()
    asked = next((op for op in trainer.ops if op.request), None)
    if asked:
        promise(final_status(other, asked) == 404, "another user does not see the operation", asked)


def final_status(raw, op):
    return raw.retrieve(op.request, op.in_protobuf).status


def settle(raw, op, may_be_gone):
    """Checks the future's answer after the restart: the same as before, the first one, or gone."""
    if op.request is None:
        return
    answer = final(raw, op)
    if op.answer is None:
        promise(answer.status == 200 or may_be_gone(answer), "the error says to submit it again", op, answer)
        op.answer = answer
    promise(op.same_as(answer), "an answer stays", op, answer)


def recover_creation(trainer, raw):
    creation = trainer.creation
    if creation is None or creation.request is None:
        return
    creation.answer = final(raw, creation)
    if creation.ok:
        trainer.model = creation.fields["model_id"]
        promise(raw.get(f"training_runs/{trainer.model}").status == 200, "a run comes back", trainer.model)
    else:
        promise("Submit it again" in creation.error, "the error tells the client to submit it again", creation)


def recover_samplers(trainer, raw):
    trainer.finish_sessions(raw, again=True)
    for sampler in trainer.ended_samplers[-1:]:
        answer = raw.get(f"samplers/{sampler}")
        promise(answer.status == 404, "the sampler of a finished session stays ended", sampler, answer)
    kept = [one for one in trainer.samplers if one[1] not in trainer.deleted_paths]
    for sampler in kept[-1:] + trainer.chance.sample(kept[:-1], min(1, len(kept[:-1]))):
        answer = raw.get(f"samplers/{sampler[0]}")
        promise(answer.status == 200, "a sampler comes back", sampler, answer)
        trainer.sample(raw, sampler)
    trainer.samplers = kept[-5:]


class Recovery:
    def __init__(self, trainer, raw):
        self.trainer, self.raw = trainer, raw
        last = trainer.ops[-1] if trainer.ops else None
        self.unheard = last if last and last.request is None else None  # perhaps accepted
        self.pending = [op for op in trainer.ops if op.answer is None and op.request]

    def go(self):
        listed = self.checkpoints()
        answers = {op.request: final(self.raw, op) for op in self.trainer.ops if op.request}
        self.add_anchors(listed, answers)
        anchor = self.anchor = self.find_anchor(listed)
        # An operation without an answer may have changed the checkpoint to which the run went back.
        self.sure = self.unheard is None or not (self.unheard.kind == "load" or self.unheard.name == LATEST)
        self.must_lose = self.sure and any(op.ok and op.kind in ("backward", "step") and op.seq > anchor.seq
                                           for op in self.trainer.ops)
        for op in self.trainer.undone:
            promise(final_status(self.raw, op) == 410, "an undone operation stays undone", op)
        highest = max((op.seq for op in self.trainer.ops if op.request), default=0)
        for op in list(self.trainer.ops):
            if op.request:
                self.compare(op, answers[op.request])
        self.repeat_some()
        self.go_on(max(highest, anchor.seq))

    def find_anchor(self, listed):
        """Returns the newest save or load. If its checkpoint was deleted, returns the newest save that still exists, and
        if there is none, the newest again: the run stays there, and is refused."""
        anchors = sorted(self.trainer.anchors, key=lambda one: one.seq)
        self.newest_is_gone = bool(anchors) and f"weights/{anchors[-1].name}" not in listed
        left = [one for one in anchors if one.is_save and f"weights/{one.name}" in listed]
        self.is_refused = self.newest_is_gone and not left
        if self.newest_is_gone and left:
            anchors = left
        self.trainer.anchors = anchors
        return anchors[-1] if anchors else Anchor(0, "", 0)

    def checkpoints(self):
        trainer = self.trainer
        answer = self.raw.get(f"training_runs/{trainer.model}/checkpoints")
        promise(answer.status == 200, "checkpoints are listed", answer)
        listed = {one["checkpoint_id"] for one in answer.json["checkpoints"]}
        public = {one["checkpoint_id"] for one in answer.json["checkpoints"] if one["public"]}
        for kind, folder in (("save", "weights"), ("save_sampler", "sampler_weights")):
            unheard = {op.name for op in trainer.ops if op.kind == kind and op.answer is None}
            for name, op in trainer.saved(kind).items():
                if op.deleted is None:
                    promise(f"{folder}/{name}" in listed, "a saved checkpoint is listed", op, listed)
                    promise(not op.public or f"{folder}/{name}" in public, "a public checkpoint stays public", op)
                elif op.deleted and name not in unheard:
                    promise(f"{folder}/{name}" not in listed, "a deleted checkpoint is not listed", op)
        known = {f"n{number}" for number in range(1, trainer.names + 1)} | {LATEST}
        promise({name.rsplit("/", 1)[1] for name in listed} <= known, "no other checkpoint is listed", listed)
        return listed

    def add_anchors(self, listed, answers):
        trainer, known = self.trainer, {anchor.seq for anchor in self.trainer.anchors}
        for op in trainer.ops:
            if op.seq in known or op.answer is not None:
                continue
            is_done = op.request is not None and answers[op.request].status == 200
            on_disk = op.kind == "save" and f"weights/{op.name}" in listed
            if on_disk and op.name != LATEST:
                trainer.add_anchor(Anchor(op.seq, op.name, op.step))
                promise(is_done or op.request is None, "a save on disk is done", op)
            elif op.kind == "save" and is_done and "path" in answers[op.request].json:
                promise(on_disk, "a save that is done is on disk", op, listed)
                trainer.add_anchor(Anchor(op.seq, op.name, op.step))
            elif op.kind == "load" and op.request and answers[op.request].status == 200 and "path" in answers[
                    op.request].json:
                steps = next((one.step for one in reversed(trainer.anchors) if one.name == op.name), None)
                trainer.add_anchor(Anchor(op.seq, op.name, steps, is_save=False))

    def compare(self, op, answer):
        anchor, after = self.anchor, op.seq > self.anchor.seq
        if answer.status == 410:
            detail = answer.detail
            promise("restarted" in detail and ("load" in detail or "Submit it again" in detail),
                    "the error tells the client what to do", op, detail)
            if self.sure:
                where = f"/weights/{anchor.name}" if anchor.name else "its first state"
                promise(where in detail, "the error names the run's checkpoint", op, detail, anchor)
            promise(op.answer is None or (after and op.ok and op.kind in DEPENDS_ON_WEIGHTS),
                    "operations before the checkpoint are kept", op, detail, anchor)
            self.trainer.ops.remove(op)
            self.trainer.undone.append(op)
            return
        if op.answer is None:
            op.answer = answer
            if op.kind == "step" and op.ok and op.step is not None:
                promise(op.fields["metrics"]["optimizer_step"] == op.step + 1, "each step is done once", op)
        promise(op.same_as(answer), "an answer stays", op, answer)
        promise(not (self.must_lose and after and op.ok and op.kind in DEPENDS_ON_WEIGHTS),
                "undone operations have no result", op, anchor)

    def repeat_some(self):
        """A repeated submission must return the same operation."""
        trainer = self.trainer
        done = [op for op in trainer.ops if op.ok and op.kind in ("forward", "backward", "step") and
                op.seq <= self.anchor.seq]
        for op in done[-1:] + trainer.chance.sample(done, min(2, len(done))):
            answer = trainer.submit(self.raw, op.kind, again=op)
            promise(answer.status == 200 and answer.json["request_id"] == op.request, "a repeat is the same operation",
                    op, answer)

    def go_on(self, highest):
        trainer, anchor = self.trainer, self.anchor
        trainer.told, trainer.passes, trainer.step = anchor.step is None, 0, anchor.step
        if self.unheard:
            trainer.ops.remove(self.unheard)
        if self.is_refused:
            return self.begin_again(highest)
        warnings = []

        def warned(op):
            where = anchor.name or "first state"
            warnings.append(op)
            return "restarted" in op.error and where in op.error and len(warnings) == 1

        if self.must_lose and trainer.chance.random() < 0.6:
            trainer.next_seq = anchor.seq + 1  # this client goes back to the checkpoint
            self.free_numbers()
            trainer.expect_at(self.raw, anchor.step) if anchor.step is not None else None
        elif self.must_lose or not self.unheard:
            trainer.next_seq = highest + (2 if self.unheard else 1)  # this client continues
            may_warn = self.must_lose or self.pending or not self.sure or self.newest_is_gone
            if anchor.step is not None:
                trainer.expect_at(self.raw, anchor.step, warned if may_warn else None)
                promise(warnings or not self.must_lose, "the client is told what it lost", anchor)
        else:
            self.send_again()

    def begin_again(self, highest):
        """The run has lost its only checkpoint: it never goes on from other weights by itself."""
        trainer = self.trainer
        if self.sure:
            trainer.next_seq = highest + (2 if self.unheard else 1)
            op = trainer.do(self.raw, "forward")
            named = f"/weights/{self.anchor.name} is gone" in op.error
            promise(not op.ok and named, "a run that lost its only checkpoint is refused", op)
        trainer.lost_runs += 1
        trainer.begin_run()

    def free_numbers(self):
        """Operations after the checkpoint whose result is kept, such as a sampler's weights, lose their number."""
        for op in self.trainer.ops:
            if op.seq > self.anchor.seq:
                op.seq = 0

    def send_again(self):
        """Repeats the operation whose submission was not answered. Whatever its result is, the trainer starts over."""
        trainer, op = self.trainer, self.unheard
        trainer.next_seq = op.seq + 1
        again = Op(op.kind, op.seq, op.name, step=None)
        answer = trainer.submit(self.raw, op.kind, again=again)
        promise(answer.status == 200, "a submission is accepted", op, answer)
        again.request = answer.json["request_id"]
        again.answer = final(self.raw, again)
        if again.answer.status == 410:
            trainer.undone.append(again)
        else:
            trainer.ops.append(again)
            if again.ok and again.kind in ("save", "load"):
                known = {one.name: one.step for one in trainer.anchors}
                step = known.get(op.name) if op.kind == "load" else None
                if again.seq not in {one.seq for one in trainer.anchors}:
                    trainer.add_anchor(Anchor(again.seq, again.name, step, again.kind == "save"))
        trainer.told, trainer.step = True, None
