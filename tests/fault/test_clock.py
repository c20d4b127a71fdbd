"""A wall clock that jumps by a day while a run trains, and between two lives of the server: training goes on, sessions and
results live as long as before, and only what has an expiry date expires."""
import pytest

import faulty_disk
import lab_results
from kept_run import KeptRun
from raw_client import PROTOBUF
from tuft_server import wait_until

pytestmark = pytest.mark.skipif(faulty_disk.MISSING is not None, reason=str(faulty_disk.MISSING))
DAY = 86_400


class Run(KeptRun):
    def __init__(self, model_dir, directory):
        self.clock = faulty_disk.FaultyDisk(directory, directory / "home")
        super().__init__(model_dir, directory, env=self.clock.environment)

    def names(self):
        listed = self.client.get(f"training_runs/{self.model}/checkpoints").json["checkpoints"]
        return {one["checkpoint_id"].rsplit("/", 1)[1] for one in listed}


@pytest.fixture
def run(model_dir, tmp_path):
    made = Run(model_dir, tmp_path)
    made.start()
    yield made
    made.server.stop()


def date_of(run):
    """Returns the date that the server tells in its answers."""
    return run.client.get("healthz").headers["Date"][:16]


def test_the_wall_clock_jumps_and_training_goes_on(run):
    today = date_of(run)
    assert run.step() == 1
    run.save("kept")
    run.save("for-an-hour", ttl_seconds=3600)
    unread = run.client.train(run.model, run.take())
    assert unread.status == 200

    run.clock.set_clock(DAY)
    wait_until(lambda: date_of(run) != today, 20, "the server sees the jump")
    assert run.client.result(unread, protobuf=True).headers["Content-Type"] == PROTOBUF
    assert run.optim() == 2
    assert run.step() == 3
    run.save("a-day-ahead")
    wait_until(lambda: run.names() == {"kept", "a-day-ahead"}, 20, "what was to live for an hour has expired")
    assert run.client.post("session_heartbeat", {"session_id": run.model.split(":")[0],
                                                 "type": "session_heartbeat"}).status == 200

    tomorrow = date_of(run)
    run.clock.set_clock(-DAY)
    wait_until(lambda: date_of(run) not in (today, tomorrow), 20, "the server sees the jump back")
    assert run.step() == 4
    run.save("a-day-behind")
    assert run.names() == {"kept", "a-day-ahead", "a-day-behind"}
    lab_results.note("clock", "the wall clock jumps by a day, and back by two, while a run trains", 2,
                     "nothing lost; sessions live; what expires does so by the wall clock")


def test_a_server_starts_a_day_before_its_state_was_written(run):
    result = run.client.train(run.model, run.take())
    assert run.client.result(result, protobuf=True).status == 200
    assert run.optim() == 1
    run.save("kept")
    run.server.stop()
    run.clock.set_clock(-DAY)
    run.start()
    assert run.names() == {"kept"}
    assert run.client.retrieve(result.json["request_id"], protobuf=True).status == 200
    loaded = run.load("kept")
    assert "error" not in loaded, loaded
    assert run.step() == 2
    lab_results.note("clock", "the server starts a day before its state was written", 1, "nothing lost")
