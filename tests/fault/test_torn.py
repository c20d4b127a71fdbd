"""Files that lost their second half while the server was away: it starts without them or says which file is broken, and
changes none of them."""
import pytest

import lab_results
from kept_run import KeptRun
from raw_client import PROTOBUF
from tuft_server import MODEL


@pytest.fixture
def run(model_dir, tmp_path):
    """A run with the checkpoints "first" and "second", each after one more step. Its server is stopped."""
    made = KeptRun(model_dir, tmp_path)
    made.start()
    for number, name in enumerate(("first", "second"), 1):
        assert made.step() == number
        made.save(name)
    made.server.stop()
    yield made
    made.server.stop()


def newest(run, name):
    """Returns a file of the newest checkpoint."""
    return run.home / "checkpoints" / run.model.replace(":", "_") / "weights/second" / name


def cut(file):
    half = file.read_bytes()[:file.stat().st_size // 2]
    file.write_bytes(half)
    return half


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "optimizer.safetensors"])
def test_a_run_whose_weights_are_broken_stands_until_another_checkpoint_is_loaded(run, name):
    half = cut(newest(run, name))
    run.start()
    for _ in range(2):
        told = run.train()
        assert "weights/second" in told and "load another checkpoint" in told, told
    assert "torn" in run.load("second")["error"]
    assert "path" in run.load("first")
    assert run.step() == 2
    assert newest(run, name).read_bytes() == half
    lab_results.note("torn", f"half of {name} of the newest checkpoint", 1, "the run stands until another one is loaded")


def test_without_the_description_of_its_newest_checkpoint_a_run_goes_on_from_the_one_before(run):
    half = cut(newest(run, "metadata.json"))
    run.start()
    told = run.train()
    assert "went back to checkpoint" in told and "weights/first" in told, told
    assert run.step() == 2
    assert newest(run, "metadata.json").read_bytes() == half
    lab_results.note("torn", "half of metadata.json of the newest checkpoint", 1,
                     "the run goes on from the one before, and says so")


def test_a_server_refuses_half_a_database_and_keeps_it(run):
    file = run.home / "persistence.db"
    half = cut(file)
    with pytest.raises(AssertionError):
        run.start()
    assert "it is unchanged: configure another file, or restore a backup" in run.server.log
    assert file.read_bytes() == half
    lab_results.note("torn", "half of the database", 1, "the start is refused; the file is named and unchanged")


def test_without_its_database_a_server_finds_the_checkpoints(run):
    (run.home / "persistence.db").write_bytes(b"")
    run.start()
    other = run.client.model(MODEL)
    answer = run.client.result(run.client.post("load_weights", {
        "model_id": other, "path": f"tinker://{run.model}/weights/second", "optimizer": True, "seq_id": 1,
        "type": "load_weights"}))
    assert "error" not in answer.json, answer
    trained = run.client.result(run.client.train(other, 2), protobuf=True)
    assert trained.headers["Content-Type"] == PROTOBUF
    assert run.client.result(run.client.optim(other, 3)).json["metrics"]["optimizer_step"] == 3
    lab_results.note("torn", "an empty database", 1, "checkpoints are found and load")
