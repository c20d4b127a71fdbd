"""Checks, with the real programs and the configuration that a user gets, what the embedded telemetry store holds."""
import json
import os
import pathlib
import subprocess

import pytest

from raw_client import RawClient, forward_backward
from tuft_server import ALICE, BIN, BOB, MODEL, TuftServer, configuration, wait_until

DUMP = os.environ.get("TUFT_STORE_DUMP", BIN.parent / "tests/tuft_store_dump")


def contents(home):
    """Returns what the store of an ended server holds, as the objects that tuft_store_dump prints."""
    run = subprocess.run([DUMP, pathlib.Path(home) / "telemetry"], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stdout + run.stderr
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def train_and_sample(server, key=ALICE):
    raw = RawClient(server.url, key)
    model = raw.model(MODEL)
    assert raw.result(raw.train(model, 1, forward_backward(model, 1)), protobuf=True).status == 200
    assert raw.result(raw.optim(model, 2)).status == 200
    sampler = raw.sampler(base_model=MODEL).json["sampling_session_id"]
    assert raw.result(raw.sample(sampler, 1)).status == 200
    return model


@pytest.fixture(scope="module")
def kept(model_dir, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    server = TuftServer(home, configuration(model_dir, console={"operators": ["alice"]})).start()
    run = train_and_sample(server)
    train_and_sample(server, BOB)
    assert RawClient(server.url, ALICE).get("get_server_capabilities").status == 200
    assert server.stop()[0] == 0
    return run, contents(home)


def spans(lines, **wanted):
    return [line for line in lines if "span" in line and all(line[key] == value for key, value in wanted.items())]


def test_one_trace_has_the_spans_of_server_and_worker(kept):
    _, lines = kept
    for route, work in (("POST /api/v1/forward_backward", "engine.forward"), ("POST /api/v1/asample", "hf_model.sample")):
        roots = spans(lines, span=route, owner="alice")
        assert roots, route
        trace = spans(lines, trace_id=roots[0]["trace_id"])
        assert {span["worker"] for span in trace} == {"", MODEL}, route
        assert work in {span["span"] for span in trace}, route
        known = {span["span_id"] for span in trace}
        assert all(span["parent_id"] in known for span in trace if span["parent_id"]), "no span is missing"


def test_records_belong_to_the_user_of_their_session(kept):
    _, lines = kept
    for route in ("POST /api/v1/forward_backward", "POST /api/v1/asample"):
        owners = {}
        for root in spans(lines, span=route):
            owners.setdefault(root["trace_id"], set()).update(
                span["owner"] for span in spans(lines, trace_id=root["trace_id"]))
        assert sorted(owners.values(), key=str) == [{"alice"}, {"bob"}], "every span of an operation has its user"
    assert {span["owner"] for span in spans(lines, span="GET /api/v1/get_server_capabilities")} == {"alice"}
    assert {span["owner"] for span in spans(lines, span="engine.train_pass")} <= {""}, "shared work belongs to nobody"
    events = {(line["log"], line["owner"]) for line in lines if "log" in line}
    assert ("future.completed", "alice") in events and ("future.completed", "bob") in events
    assert ("server.ready", "") in events


def test_the_step_of_a_run_is_there(kept):
    run, lines = kept
    (step,) = [line for line in lines if line.get("run") == run]
    assert step["owner"] == "alice" and step["step"] == 1 and step["loss"] > 0 and step["tokens"] > 0
    assert step["pass_seconds"] > 0 and step["step_seconds"] > 0


def test_a_killed_worker_leaves_what_it_recorded_until_then(model_dir, tmp_path):
    server = TuftServer(tmp_path, configuration(model_dir)).start()
    train_and_sample(server)
    # Two rounds of the feed have ended when the worker has been asked twice more.
    rounds = lambda: server.metric("tuft_worker_rpc_duration_seconds_count", method="TakeTelemetry")  # noqa: E731
    asked = rounds()
    wait_until(lambda: rounds() >= asked + 3, 20, "the server has fetched what was recorded")
    (worker,) = server.worker_pids()
    os.kill(worker, 9)
    wait_until(lambda: worker not in server.worker_pids(), 20, "the worker is gone")
    server.stop()
    assert "engine.forward" in {span["span"] for span in spans(contents(tmp_path))}


def test_a_store_that_is_off_records_nothing(model_dir, tmp_path):
    server = TuftServer(tmp_path, configuration(model_dir, telemetry={"store": {"enabled": False}})).start()
    train_and_sample(server)
    assert server.metric("otel_sdk_span_started_total") == 0
    assert server.stop()[0] == 0
    assert not (tmp_path / "telemetry").exists()


def test_a_directory_that_cannot_be_used_costs_the_history_only(model_dir, tmp_path):
    (tmp_path / "telemetry").write_text("a file")
    server = TuftServer(tmp_path, configuration(model_dir)).start()
    train_and_sample(server)
    assert server.stop()[0] == 0
    said = [line for line in server.lines if "[telemetry_store." in line]
    assert len(said) == 1 and "cannot use its directory" in said[0], server.log


def test_a_disabled_sdk_records_nothing(model_dir, tmp_path):
    server = TuftServer(tmp_path, configuration(model_dir), env={"OTEL_SDK_DISABLED": "true"}).start()
    train_and_sample(server)
    assert server.stop()[0] == 0
    assert not [line for line in contents(tmp_path) if "span" in line or "log" in line]
