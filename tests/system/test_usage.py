"""Tests billing, audit events and the trace of a session with the real SDK and the `tinker` CLI."""
import datetime
import json
import pathlib
import urllib.error
import urllib.request

import pytest
from tinker import types

from conftest import sdk_cli, service_client
from examples_of_data import datum, prompt
from raw_client import RawClient
from tuft_server import ALICE, BOB, MODEL, TuftServer, configuration

CANARY = "xylophone"
HOUR = datetime.timedelta(hours=1)


@pytest.fixture(scope="module")
def traced(model_dir, tmp_path_factory):
    """A server that records traces and exports them to a file."""
    home = tmp_path_factory.mktemp("traced")
    config = configuration(model_dir, telemetry={"enabled": True, "protocol": "file", "file_path": str(home / "otlp.jsonl")},
                           persistence={"mode": "FILE"})
    with TuftServer(home, config) as server:
        yield server


def work(server, key, text):
    """Trains a step, saves and samples. Returns the session's id, the training client, the checkpoint, and the number of
    tokens that were sampled: the end of the text may come before the fifth."""
    client = service_client(server, key)
    training = client.create_lora_training_client(base_model=MODEL, rank=8)
    training.forward_backward([datum(text)], "cross_entropy").result()
    training.optim_step(types.AdamParams(learning_rate=1e-3)).result()
    saved = training.save_state("kept").result().path
    sampler = training.save_weights_and_get_sampling_client()
    drawn = sampler.sample(prompt(text), 1, types.SamplingParams(max_tokens=5, temperature=1.0)).result()
    return client.holder.get_session_id(), training, saved, len(drawn.sequences[0].tokens)


def window():
    now = datetime.datetime.now(datetime.timezone.utc).replace(minute=0, second=0, microsecond=0)
    return now - HOUR, now + HOUR


def usage(server, key):
    rest = service_client(server, key).create_rest_client()
    return rest.get_billing_usage(*window()).result()


def totals(response):
    sums = {}
    for event in response.data:
        info = event.event_info
        if info.type == "storage":  # increases without requests
            continue
        amount = getattr(info, "token_count", None) or getattr(info, "count", 0)
        sums[info.type] = sums.get(info.type, 0) + amount
    return sums


def spans_of(path):
    file = json.loads(pathlib.Path(path).read_text())
    spans = []
    for resource in file["resourceSpans"]:
        service = {a["key"]: a["value"] for a in resource["resource"]["attributes"]}
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                span["resource"] = service
                spans.append(span)
    return file, spans


def attributes(span):
    return {a["key"]: next(iter(a["value"].values())) for a in span.get("attributes", [])}


@pytest.fixture(scope="module")
def two_sessions(traced):
    return work(traced, ALICE, f"alice writes of a {CANARY}"), work(traced, BOB, f"bob writes of a {CANARY} too, longer")


def test_the_bill_counts_the_tokens_of_each_user(traced, two_sessions):
    (alices, _, _, sampled), (bobs, *_) = two_sessions
    mine, theirs = usage(traced, ALICE), usage(traced, BOB)
    assert totals(mine)["training"] > 0 and totals(mine)["sampling_sample"] == sampled and totals(mine)["checkpoint"] == 2
    assert totals(theirs)["training"] > totals(mine)["training"]
    assert {event.user_id for event in mine.data} == {"alice"} and set(mine.sessions) == {alices}
    of_sessions = [event for event in mine.data if event.event_info.type != "storage"]
    assert {(event.session_id, event.base_model) for event in of_sessions} == {(alices, MODEL)}
    assert {event.session_id for event in theirs.data if event.event_info.type != "storage"} == {bobs}


def test_the_cli_prints_the_bill(traced, two_sessions, tmp_path):
    begin, end = (time.isoformat() for time in window())
    run = sdk_cli(traced, "billing", "usage", begin, end, "--csv", "-", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "training" in run.stdout and two_sessions[0][0] in run.stdout and two_sessions[1][0] not in run.stdout
    refused = sdk_cli(traced, "billing", "usage", "2026-01-01T00:00:00Z", "2026-03-01T00:00:00Z", cwd=tmp_path)
    assert refused.returncode != 0 and "14 days" in refused.stderr + refused.stdout


def test_the_audit_tells_what_happened_to_checkpoints(traced, two_sessions):
    (_, training, saved, _), _ = two_sessions
    training.load_state(saved).result()
    rest = service_client(traced, ALICE).create_rest_client()
    entries = rest.get_audit_log("checkpoints").result().entries
    told = [(entry.event, entry.tinker_path) for entry in entries]
    assert ("checkpoint_saved", saved) in told and ("checkpoint_loaded", saved) in told
    everything = {entry.event for entry in rest.get_audit_log().result().entries}
    assert {"session_created", "run_created"} <= everything
    bobs = service_client(traced, BOB).create_rest_client().get_audit_log().result().entries
    assert not [entry for entry in bobs if entry.tinker_path == saved]
    yesterday = datetime.date.today() - datetime.timedelta(days=2)
    assert rest.get_audit_log(day=yesterday).result().entries == []


def test_the_cli_exports_a_trace_of_connected_trees_down_to_the_engine(traced, two_sessions, tmp_path):
    session = two_sessions[0][0]
    run = sdk_cli(traced, "session", "export-trace", session, cwd=tmp_path)
    assert run.returncode == 0, run.stderr + run.stdout
    file, spans = spans_of(tmp_path / f"{session}.pftrace")
    assert file["traceEvents"], "there are no events for Perfetto"
    by_id = {span["spanId"]: span for span in spans}
    assert len({str(span["resource"]["process.pid"]) for span in spans}) == 2, "there are not two processes"
    names = {span["name"] for span in spans}
    assert {"POST /api/v1/forward_backward", "training_controller.run_forward_backward", "hf_model.forward_backward",
            "engine.forward", "engine.backward", "hf_model.sample"} <= names
    for span in spans:
        if span["name"] != "engine.backward":
            continue
        chain = [span]
        while chain[-1].get("parentSpanId") in by_id:
            chain.append(by_id[chain[-1]["parentSpanId"]])
        assert chain[-1]["name"] == "POST /api/v1/forward_backward", [link["name"] for link in chain]


def test_a_trace_holds_nothing_of_others_and_no_prompt(traced, two_sessions, tmp_path):
    mine, theirs = two_sessions[0][0], two_sessions[1][0]
    url = service_client(traced, ALICE).create_rest_client().export_session_trace(mine).result()
    assert url.startswith(traced.url)
    with urllib.request.urlopen(url, timeout=30) as answer:
        assert "attachment" in answer.headers["Content-Disposition"]
        text = answer.read().decode()
        assert int(answer.headers["Content-Length"]) == len(text.encode())
    (tmp_path / "trace.json").write_text(text)
    assert theirs not in text and CANARY not in text and ALICE not in text
    _, spans = spans_of(tmp_path / "trace.json")
    named = {attributes(span).get("tuft.session_id") for span in spans}
    assert named <= {mine, None}
    refused = RawClient(traced.url, BOB).get(f"sessions/{mine}/trace_export")
    unknown = RawClient(traced.url, BOB).get("sessions/none/trace_export")
    assert refused.status == unknown.status == 404 and refused.json == unknown.json
    with pytest.raises(urllib.error.HTTPError) as wrong:
        urllib.request.urlopen(url[:-4] + "0000", timeout=30)
    assert wrong.value.code == 404


def test_without_tracing_the_export_says_so(server, alice):
    alice.create_lora_training_client(base_model=MODEL, rank=8)
    with pytest.raises(RuntimeError, match="telemetry.enabled"):
        alice.create_rest_client().export_session_trace(alice.holder.get_session_id()).result()


def test_counts_and_audit_outlive_the_server(model_dir, tmp_path):
    config = configuration(model_dir, persistence={"mode": "FILE"})
    with TuftServer(tmp_path, config) as first:
        _, _, saved, _ = work(first, ALICE, "counted once")
        before = totals(usage(first, ALICE))
        first.stop()
    with TuftServer(tmp_path, config) as second:
        assert totals(usage(second, ALICE)) == before
        told = service_client(second, ALICE).create_rest_client().get_audit_log("checkpoints").result().entries
        assert ("checkpoint_saved", saved) in [(entry.event, entry.tinker_path) for entry in told]
