"""Files that lost their second half while the server was away: it starts without them or says which file is broken, and
changes none of them."""
import pytest

import lab_results
from raw_client import PROTOBUF, RawClient
from tuft_server import ALICE, MODEL, TuftServer, configuration


class Machine:
    def __init__(self, model_dir, directory):
        self.home = directory / "home"
        self.config = configuration(model_dir, persistence={"mode": "FILE"})
        self.server = None
        self.seq = 0

    def start(self):
        self.server = TuftServer(self.home, self.config)
        self.server.start()
        self.client = RawClient(self.server.url, ALICE, timeout=60)

    def send(self, submit, protobuf=False):
        self.seq += 1
        return self.client.result(submit(self.seq), protobuf)

    def train(self):
        """Returns None if the pass was made, or why it failed."""
        answer = self.send(lambda seq: self.client.train(self.model, seq), protobuf=True)
        return None if answer.headers["Content-Type"] == PROTOBUF else answer.json["error"]

    def step(self):
        """Trains by one step. Returns its number."""
        assert self.train() is None
        return self.send(lambda seq: self.client.optim(self.model, seq)).json["metrics"]["optimizer_step"]

    def load(self, name):
        return self.send(lambda seq: self.client.post("load_weights", {
            "model_id": self.model, "path": f"tinker://{self.model}/weights/{name}", "optimizer": True, "seq_id": seq,
            "type": "load_weights"})).json

    def save(self, name):
        saved = self.send(lambda seq: self.client.post("save_weights", {
            "model_id": self.model, "path": name, "seq_id": seq, "type": "save_weights"}))
        assert "path" in saved.json, saved

    def train_and_stop(self):
        self.start()
        self.model = self.client.model(MODEL)
        for number, name in enumerate(("first", "second"), 1):
            assert self.step() == number
            self.save(name)
        self.server.stop()

    def file(self, name):
        return self.home / "checkpoints" / self.model.replace(":", "_") / "weights/second" / name


@pytest.fixture
def machine(model_dir, tmp_path):
    made = Machine(model_dir, tmp_path)
    made.train_and_stop()
    yield made
    made.server.stop()


def cut(file):
    half = file.read_bytes()[:file.stat().st_size // 2]
    file.write_bytes(half)
    return half


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "optimizer.safetensors"])
def test_a_run_whose_weights_are_broken_stands_until_another_checkpoint_is_loaded(machine, name):
    half = cut(machine.file(name))
    machine.start()
    for _ in range(2):
        told = machine.train()
        assert "weights/second" in told and "load another checkpoint" in told, told
    assert "torn" in machine.load("second")["error"]
    assert "path" in machine.load("first")
    assert machine.step() == 2
    assert machine.file(name).read_bytes() == half
    lab_results.note("torn", f"half of {name} of the newest checkpoint", 1, "the run stands until another one is loaded")


def test_without_the_description_of_its_newest_checkpoint_a_run_goes_on_from_the_one_before(machine):
    half = cut(machine.file("metadata.json"))
    machine.start()
    told = machine.train()
    assert "went back to checkpoint" in told and "weights/first" in told, told
    assert machine.step() == 2
    assert machine.file("metadata.json").read_bytes() == half
    lab_results.note("torn", "half of metadata.json of the newest checkpoint", 1,
                     "the run goes on from the one before, and says so")


def test_a_server_refuses_half_a_database_and_keeps_it(machine):
    file = machine.home / "persistence.db"
    half = cut(file)
    with pytest.raises(AssertionError):
        machine.start()
    assert "it is unchanged: configure another file, or restore a backup" in machine.server.log
    assert file.read_bytes() == half
    lab_results.note("torn", "half of the database", 1, "the start is refused; the file is named and unchanged")


def test_without_its_database_a_server_finds_the_checkpoints(machine):
    (machine.home / "persistence.db").write_bytes(b"")
    machine.start()
    other = machine.client.model(MODEL)
    answer = machine.client.result(machine.client.post("load_weights", {
        "model_id": other, "path": f"tinker://{machine.model}/weights/second", "optimizer": True, "seq_id": 1,
        "type": "load_weights"}))
    assert "error" not in answer.json, answer
    trained = machine.client.result(machine.client.train(other, 2), protobuf=True)
    assert trained.headers["Content-Type"] == PROTOBUF
    assert machine.client.result(machine.client.optim(other, 3)).json["metrics"]["optimizer_step"] == 3
    lab_results.note("torn", "an empty database", 1, "checkpoints are found and load")
