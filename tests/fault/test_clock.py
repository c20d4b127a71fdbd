"""A wall clock that jumps by a day while a run trains, and between two lives of the server: training goes on, sessions and
results live as long as before, and only what has an expiry date expires."""
import pytest

import faulty_disk
import lab_results
from raw_client import PROTOBUF, RawClient
from tuft_server import ALICE, MODEL, TuftServer, configuration, wait_until

pytestmark = pytest.mark.skipif(faulty_disk.MISSING is not None, reason=str(faulty_disk.MISSING))
DAY = 86_400


class Machine:
    def __init__(self, model_dir, directory):
        self.home = directory / "home"
        self.clock = faulty_disk.FaultyDisk(directory, self.home)
        self.config = configuration(model_dir, persistence={"mode": "FILE"})
        self.server = self.model = None
        self.seq = 1

    def start(self):
        self.server = TuftServer(self.home, self.config, env=self.clock.environment)
        self.server.start()
        self.client = RawClient(self.server.url, ALICE, timeout=60)
        if self.model is None:
            self.model = self.client.model(MODEL)

    def take(self):
        self.seq += 1
        return self.seq - 1

    def step(self):
        """Trains by one step. Returns its number."""
        trained = self.client.result(self.client.train(self.model, self.take()), protobuf=True)
        assert trained.headers["Content-Type"] == PROTOBUF, trained
        return self.client.result(self.client.optim(self.model, self.take())).json["metrics"]["optimizer_step"]

    def save(self, name, **options):
        answer = self.client.result(self.client.post("save_weights", {
            "model_id": self.model, "path": name, "seq_id": self.take(), "type": "save_weights", **options}))
        assert "path" in answer.json, answer

    def names(self):
        listed = self.client.get(f"training_runs/{self.model}/checkpoints").json["checkpoints"]
        return {one["checkpoint_id"].rsplit("/", 1)[1] for one in listed}


@pytest.fixture
def machine(model_dir, tmp_path):
    made = Machine(model_dir, tmp_path)
    made.start()
    yield made
    made.server.stop()


def date_of(machine):
    """Returns the date that the server tells in its answers."""
    return machine.client.get("healthz").headers["Date"][:16]


def test_the_wall_clock_jumps_and_training_goes_on(machine):
    today = date_of(machine)
    assert machine.step() == 1
    machine.save("kept")
    machine.save("for-an-hour", ttl_seconds=3600)
    unread = machine.client.train(machine.model, machine.take())
    assert unread.status == 200

    machine.clock.set_clock(DAY)
    wait_until(lambda: date_of(machine) != today, 20, "the server sees the jump")
    assert machine.client.result(unread, protobuf=True).headers["Content-Type"] == PROTOBUF
    assert machine.client.result(machine.client.optim(machine.model, machine.take())).json["metrics"]["optimizer_step"] == 2
    assert machine.step() == 3
    machine.save("a-day-ahead")
    wait_until(lambda: machine.names() == {"kept", "a-day-ahead"}, 20, "what was to live for an hour has expired")
    assert machine.client.post("session_heartbeat", {"session_id": machine.model.split(":")[0],
                                                     "type": "session_heartbeat"}).status == 200

    machine.clock.set_clock(-DAY)
    wait_until(lambda: date_of(machine) != today, 20, "the server sees the jump")
    assert machine.step() == 4
    machine.save("a-day-behind")
    assert machine.names() == {"kept", "a-day-ahead", "a-day-behind"}
    lab_results.note("clock", "the wall clock jumps by a day, and back by two, while a run trains", 2,
                     "nothing lost; sessions live; what expires does so by the wall clock")


def test_a_server_starts_a_day_before_its_state_was_written(machine):
    result = machine.client.train(machine.model, machine.take())
    assert machine.client.result(result, protobuf=True).status == 200
    assert machine.client.result(machine.client.optim(machine.model, machine.take())).json["metrics"]["optimizer_step"] == 1
    machine.save("kept")
    machine.server.stop()
    machine.clock.set_clock(-DAY)
    machine.start()
    assert machine.names() == {"kept"}
    assert machine.client.retrieve(result.json["request_id"], protobuf=True).status == 200
    made = machine.client.result(machine.client.post("load_weights", {
        "model_id": machine.model, "path": f"tinker://{machine.model}/weights/kept", "optimizer": True,
        "seq_id": machine.take(), "type": "load_weights"})).json
    assert "error" not in made, made
    assert machine.step() == 2
    lab_results.note("clock", "the server starts a day before its state was written", 1, "nothing lost")
