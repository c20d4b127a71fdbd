"""Runs two tenants at once and checks that the telemetry of one never has a key of the other."""
import threading

import pytest

import workload
from tuft_server import ALICE, BOB


@pytest.fixture(scope="module")
def exported(model_dir, tmp_path_factory):
    server, receiver = workload.start_exporting(model_dir, tmp_path_factory.mktemp("home"), tenant_label=True)
    receiver.runs = {}

    def work(name, key, rank):
        receiver.runs[name] = workload.train_and_sample(server.url, key, steps=4, rank=rank)

    threads = [threading.Thread(target=work, args=one) for one in (("alice", ALICE, 4), ("bob", BOB, 8), ("second", ALICE, 16))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    workload.finish(server, receiver)
    yield receiver
    receiver.stop()


def test_all_three_worked(exported):
    assert len(exported.runs) == 3 and len(set(exported.runs.values())) == 3


def test_no_trace_belongs_to_two_sessions(exported):
    known = {run.split(":")[0] for run in exported.runs.values()}
    by_trace = {}
    for span in exported.spans():
        if "tuft.session_id" in span.attributes:
            by_trace.setdefault(span.trace_id, set()).add(span.attributes["tuft.session_id"])
    assert all(len(sessions) == 1 for sessions in by_trace.values())
    assert known <= set().union(*by_trace.values())


@pytest.mark.parametrize("key", ["tuft.session_id", "tuft.training_run_id", "tuft.sampling_session_id"])
def test_spans_of_one_id_are_no_spans_of_another(key, exported):
    spans = {}
    for span in exported.spans():
        if key in span.attributes:
            spans.setdefault(span.attributes[key], set()).add((span.trace_id, span.span_id))
    assert len(spans) >= 3
    assert sum(map(len, spans.values())) == len(set().union(*spans.values()))
    if key != "tuft.sampling_session_id":
        assert all(len(spans[exported.runs[name] if key == "tuft.training_run_id" else exported.runs[name].split(":")[0]]) >= 4
                   for name in exported.runs)


def test_every_id_of_a_span_or_record_is_of_its_session(exported):
    for what in [*exported.spans(), *exported.logs()]:
        session = what.attributes.get("tuft.session_id")
        for key in ("tuft.training_run_id", "tuft.sampling_session_id"):
            if session and key in what.attributes:
                assert what.attributes[key].startswith(session + ":"), what.attributes


def test_each_run_keeps_its_rank(exported):
    for name, rank in (("alice", 4), ("bob", 8), ("second", 16)):
        ranks = {span.attributes["tuft.lora_rank"] for span in exported.spans()
                 if span.attributes.get("tuft.training_run_id") == exported.runs[name] and "tuft.lora_rank" in span.attributes}
        assert ranks == {rank}


def test_tenants_are_counted_by_their_configured_names(exported):
    tokens = {kind: {name: workload.total(exported, "tuft.tenant.tokens", tenant=name, kind=kind) for name in ("alice", "bob")}
              for kind in ("train", "input", "output")}
    for kind in ("train", "input"):
        assert tokens[kind]["alice"] == 2 * tokens[kind]["bob"] > 0, tokens
    assert all(tokens["output"].values()), tokens
    tenants = {labels["tenant"] for labels, _ in workload.newest_points(exported, "tuft.tenant.requests")}
    assert tenants == {"alice", "bob"}
