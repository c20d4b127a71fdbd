"""A disk that is full or broken, or a process that is killed, at every single write of a save, a publication and a
training step: the operation works or fails with a reason, nothing that was acknowledged is lost, and afterwards
everything works again. TUFT_LAB=1 tries each write, else every fifth."""
import collections
import os

import pytest

import faulty_disk
import lab_results
from ledger import CUT, pb
from raw_client import RawClient, forward_backward
from tuft_server import ALICE, MODEL, TuftServer, configuration, wait_until

pytestmark = [pytest.mark.skipif(faulty_disk.MISSING is not None, reason=str(faulty_disk.MISSING)),
              pytest.mark.timeout(3600 if os.environ.get("TUFT_LAB") else 300)]
STRIDE = 1 if os.environ.get("TUFT_LAB") else 5
AGAIN_SECONDS = 60


class Machine:
    """A server on a faulty disk, and a run that is trained by one step. It is the same after each restart."""

    def __init__(self, model_dir, directory):
        self.home = directory / "home"
        self.disk = faulty_disk.FaultyDisk(directory, self.home)
        self.config = configuration(model_dir, persistence={"mode": "FILE"}, limits={
            "samplers_per_user_max": 100000, "unnamed_samplers_per_run_max": 100000})
        self.server, self.port, self.outcomes = None, "0", collections.Counter()
        self.start()
        self.model = self.client.model(MODEL)
        self.seq, self.steps, self.names, self.saved = 1, 0, 0, []
        self.step()
        self.loss = self.forward()
        self.save("weights")
        assert self.disk.calls > 10, "the library does not see the calls"

    def start(self):
        (self.home / "tuft_current_server").unlink(missing_ok=True)
        self.server = TuftServer(self.home, self.config, env=self.disk.environment)
        self.server.arguments = ["--host", "127.0.0.1", "--port", self.port, "--log-level", "warning"]
        self.server.start()
        self.port = self.server.url.rsplit(":", 1)[1]
        self.client = RawClient(self.server.url, ALICE, timeout=60)

    def ended(self):
        return self.server.process.poll() is not None

    # -- operations; each returns its answer, or None if it was refused for now, and can be repeated

    def send(self, submit, protobuf=False):
        """Returns the final answer of an operation. None if the store was away; then the operation has no effect yet."""
        submitted = submit(self.seq)
        if submitted.status == 503:
            return None
        if submitted.status == 400 and "cannot be used again" in submitted.detail:
            self.seq += 1  # a killed server had accepted the operation
            return None
        assert submitted.status in (200, 202), submitted
        answer = self.client.result(submitted, protobuf)
        if answer.status == 503:
            return None
        assert answer.status in (200, 410), answer
        self.seq += 1
        return answer

    def repeat(self, submit, protobuf=False, what="an operation works again"):
        """Repeats an operation until it is done without an error."""
        def done():
            answer = self.send(submit, protobuf)
            good = answer is not None and answer.status == 200 and (protobuf or "error" not in answer.json)
            return answer if good else None
        return wait_until(done, AGAIN_SECONDS, what)

    def forward(self):
        answer = self.repeat(lambda seq: self.client.train(self.model, seq, forward_backward(
            self.model, seq, forward_only=True)), protobuf=True)
        return pb.ForwardBackwardOutput.FromString(answer.body).metrics["loss:sum"]

    def step(self):
        self.repeat(lambda seq: self.client.train(self.model, seq), protobuf=True)
        metrics = self.repeat(lambda seq: self.client.optim(self.model, seq)).json["metrics"]
        self.steps += 1
        assert metrics["optimizer_step"] == self.steps, (metrics, self.steps)

    def save_request(self, kind, name):
        route = {"weights": "save_weights", "sampler_weights": "save_weights_for_sampler"}[kind]
        return lambda seq: self.client.post(route, {"model_id": self.model, "path": name, "seq_id": seq, "type": route})

    def save(self, kind):
        self.names += 1
        name = f"n{self.names}"
        self.repeat(self.save_request(kind, name))
        self.saved.append((kind, name))

    # -- checks

    def listed(self):
        answer = self.client.get(f"training_runs/{self.model}/checkpoints")
        assert answer.status == 200, answer
        return {tuple(one["checkpoint_id"].split("/")) for one in answer.json["checkpoints"]}

    def check(self):
        """Everything that was acknowledged is there, and can be loaded."""
        assert set(self.saved) <= self.listed(), set(self.saved) - self.listed()
        newest = next(name for kind, name in reversed(self.saved) if kind == "weights")
        path = f"tinker://{self.model}/weights/{newest}"
        self.repeat(lambda seq: self.client.post("load_weights", {
            "model_id": self.model, "path": path, "optimizer": True, "seq_id": seq, "type": "load_weights"}))
        assert self.forward() == pytest.approx(self.loss, rel=1e-5)


@pytest.fixture
def machine(model_dir, tmp_path):
    made = Machine(model_dir, tmp_path)
    yield made
    made.disk.heal()
    made.server.stop()


def writes_of(machine, work):
    before = machine.disk.calls
    work()
    return machine.disk.calls - before


def report(machine, tried, writes):
    outcomes = ", ".join(f"{count} x {outcome}" for outcome, count in sorted(machine.outcomes.items()))
    print(f"{tried}: {writes} writes; {outcomes}")
    lab_results.note("disk", tried, machine.outcomes.total(), f"{outcomes}; afterwards nothing missing, all works")


def try_save(machine, kind, name):
    """Saves once. Returns what the client saw."""
    answer = machine.send(machine.save_request(kind, name))
    if answer is None:
        return "refused for now"
    if answer.status == 410 or "error" in answer.json:
        reason = answer.json.get("error") or answer.json["detail"]
        assert reason, answer
        return f"failed: {reason[:60]}"
    machine.saved.append((kind, name))
    return "works"


@pytest.mark.parametrize("how", ["disk full", "EIO", "short write"])
@pytest.mark.parametrize("kind", ["weights", "sampler_weights"])
def test_a_save_whose_nth_write_fails_works_or_says_why(machine, kind, how):
    writes = max(writes_of(machine, lambda: machine.save(kind)) for _ in range(2))
    workers = machine.server.worker_pids()
    for number in range(1, writes + 1, STRIDE):
        machine.names += 1
        name = f"n{machine.names}"
        machine.disk.fail(number, how)
        outcome = try_save(machine, kind, name)
        machine.disk.heal()
        machine.outcomes[outcome] += 1
        assert how != "short write" or outcome == "works", (number, outcome)
        assert how != "disk full" or outcome in ("works", "refused for now") or "disk" in outcome, (number, outcome)
        if outcome != "works":
            machine.repeat(machine.save_request(kind, name), what=f"a save works again after {outcome}")
            machine.saved.append((kind, name))
        assert not machine.ended() and machine.server.worker_pids() == workers, f"a process died; write {number}"
    machine.check()
    report(machine, f"a save ({kind}), {how} at its nth write", writes)


@pytest.mark.parametrize("how", ["disk full", "EIO"])
def test_a_disk_that_stays_broken_for_a_while_loses_nothing(machine, how):
    machine.disk.fail(1, how, count=faulty_disk.FOR_EVER)
    outcomes = [try_save(machine, "weights", "full") for _ in range(3)]
    assert "works" not in outcomes
    assert how != "disk full" or all("disk" in one or one == "refused for now" for one in outcomes), outcomes
    assert machine.client.get("healthz").status == 200
    machine.disk.heal()
    machine.repeat(machine.save_request("weights", "full"))
    machine.saved.append(("weights", "full"))
    machine.save("sampler_weights")
    machine.check()
    machine.outcomes.update(outcomes)
    report(machine, f"{how} for a while", len(outcomes))


@pytest.mark.parametrize("how", ["disk full", "EIO"])
def test_a_step_whose_nth_record_is_not_written_is_done_once(machine, how):
    for number in range(1, max(writes_of(machine, machine.step) for _ in range(2)) + 1, STRIDE):
        machine.disk.fail(number, how)
        machine.step()  # counts the steps
        machine.disk.heal()
        machine.outcomes["done once"] += 1
    report(machine, f"a step, {how} at its nth write", machine.outcomes.total())


@pytest.mark.parametrize("kind", ["weights", "sampler_weights"])
def test_killed_at_the_nth_write_of_a_save_nothing_acknowledged_is_lost(machine, kind):
    writes = max(writes_of(machine, lambda: machine.save(kind)) for _ in range(2))
    for number in range(1, writes + 1, STRIDE):
        machine.names += 1
        machine.disk.fail(number, "kill -9")
        try:
            outcome = try_save(machine, kind, f"n{machine.names}")
        except CUT:
            outcome = "server killed"
        machine.disk.heal()
        if outcome == "server killed":
            machine.server.wait_exit()
        elif outcome != "works":
            machine.server.stop()  # a worker that dies often is started again later and later
        if machine.ended():
            machine.start()
        machine.outcomes[outcome] += 1
        machine.check()
    report(machine, f"a save ({kind}), kill -9 at its nth write", writes)


@pytest.mark.parametrize("how", ["disk full", "EIO", "kill -9"])
def test_a_start_whose_nth_write_fails_ends_with_a_reason_or_works(machine, how):
    machine.server.stop()
    begin = machine.disk.calls
    machine.start()
    writes = machine.disk.calls - begin
    for number in range(1, writes + 1, STRIDE):
        machine.server.stop()
        machine.disk.fail(number, how)
        try:
            machine.start()
            machine.outcomes["works"] += 1
        except AssertionError as ended:
            machine.server.wait_exit()  # its last lines, too
            machine.outcomes["ended"] += 1
            assert how == "kill -9" or machine.server.process.returncode == 1, ended
            assert how == "kill -9" or machine.server.log.strip(), "the server ended without a word"
        machine.disk.heal()
        if machine.ended():
            machine.start()
        machine.check()
    report(machine, f"a start, {how} at its nth write", writes)
