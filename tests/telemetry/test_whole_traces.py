"""Checks, with the configuration that a user gets, that one trace tells the whole story of an operation: its log records
are exported although the console does not show them, and each of its spans and records carries the keys of the operation."""
import pathlib
import re

import pytest

import workload
from otlp_receiver import OtlpReceiver
from raw_client import RawClient, forward_backward
from tuft_server import ALICE, MODEL, TuftServer, configuration
from workload import STRANGER, spans_below, traces_of

# The starts and stops of the programs, of which no span tells, and what telemetry says about itself.
OUTSIDE_SPANS = {"server.starting", "server.ready", "server.draining", "server.stopped", "worker.stopping",
                 "telemetry.no_gpu_metrics", "telemetry.started"}
COMPLETIONS = "/oai/api/v1/completions"
OPERATIONS = ("create_model", "forward_backward", "optim_step", "save_weights", "load_weights",
              "save_weights_for_sampler", "unload_model", "asample")
# These serve requests of several users at once, and name nobody.
SHARED = {"engine.train_pass", "engine.optim_pass", "engine.step"}


def rows(spans):
    """Returns the names of spans without the machine and thread of a row of request tracing."""
    return {re.sub(r"\(host:.*\)$", "", span.name) for span in spans}


@pytest.fixture(scope="module")
def by_default(model_dir, tmp_path_factory):
    receiver = OtlpReceiver()
    config = configuration(model_dir, telemetry={"enabled": True, "service_name": "tuft", "otlp_endpoint": receiver.endpoint})
    server = TuftServer(tmp_path_factory.mktemp("home"), config,
                        env={"OTEL_METRIC_EXPORT_INTERVAL": "500", "OTEL_SERVICE_NAME": "another"}).start()
    receiver.run = workload.train_and_sample(server.url)
    raw = RawClient(server.url, ALICE)
    model = raw.model(MODEL)
    assert raw.result(raw.train(model, 1, forward_backward(model, 1)), protobuf=True).status == 200
    assert raw.result(raw.post("unload_model", {"model_id": model, "type": "unload_model"})).status == 200
    for body in ('{"model": "tiny", "prompt": "hello", "max_tokens": 3}', '{"model": "tiny", "prompt": 7}'):
        answer = raw.request("POST", COMPLETIONS, body, {"Content-Type": "application/json",
                                                         "Authorization": f"Bearer {ALICE}"})
        assert answer.status == (200 if "hello" in body else 400), answer
    raw.post("create_session", {}, {"X-API-Key": STRANGER})
    workload.finish(server, receiver)
    yield receiver
    receiver.stop()


@pytest.mark.parametrize("route", ["/api/v1/forward_backward", "/api/v1/asample"])
def test_logs_of_this_trace_are_those_of_the_operation(route, by_default):
    logs = by_default.logs()
    for root, _ in traces_of(by_default, route):
        assert root.attributes["http.response.status_code"] == 200
        found = {log.event for log in logs if log.trace_id == root.trace_id}
        work = {"sample": "sampling"}.get(root.attributes["tuft.operation_type"], root.attributes["tuft.operation_type"])
        assert found >= {"http.access", "future.enqueued", "future.begin", "future.completed", work + ".begin",
                         work + ".completed"}, (root, found)


def test_the_console_shows_what_its_level_allows(by_default):
    assert "[session.created]" in by_default.log
    assert " DEBUG " not in by_default.log and "[future." not in by_default.log
    assert "log_suppressed" not in by_default.log


def test_every_record_is_inside_a_span_but_for_starts_and_stops(by_default):
    spans = {(span.trace_id, span.span_id) for span in by_default.spans()}
    logs = by_default.logs()
    assert {log.event for log in logs if not log.trace_id} <= OUTSIDE_SPANS
    assert not {log.event for log in logs if log.trace_id and (log.trace_id, log.span_id) not in spans}
    assert {"auth.failed", "worker.listening", "worker.adapter_plan"} <= {log.event for log in logs if log.trace_id}


def share_keys(operation):
    return {key: value for key, value in operation.attributes.items()
            if key in ("tuft.session_id", "tuft.training_run_id", "tuft.sampling_session_id", "tuft.request_id",
                       "tuft.operation_type")}


@pytest.mark.parametrize("route", OPERATIONS)
def test_every_span_and_record_of_an_operation_carries_its_keys(route, by_default):
    logs = by_default.logs()
    for root, spans in traces_of(by_default, "/api/v1/" + route):
        operation, = [span for span in spans if span.name == "future_store.execute_operation"]
        keys = share_keys(operation)
        assert len(keys) == 4, keys
        for span in spans_below(spans, root):
            assert span.name not in SHARED
            assert share_keys(span).items() >= keys.items(), span
        for log in logs:
            if log.trace_id == root.trace_id:
                assert share_keys(log).items() >= keys.items(), log.event
        if route == "asample":
            assert rows(spans) >= {"http", "engine", "PREPROCESS", "SCHEDULE", "PREFILL", "DECODE", "POSTPROCESS"}


def test_no_span_of_a_shared_pass_names_anybody(by_default):
    shared = [span for span in by_default.spans() if span.name in SHARED]
    assert shared
    for root in shared:
        below = [span for span in by_default.spans() if span.trace_id == root.trace_id]
        assert not [span for span in below if share_keys(span)], root


@pytest.mark.parametrize("route", ["/api/v1/asample", COMPLETIONS])
def test_the_stages_of_a_sample_are_linked_from_the_server_to_the_worker(route, by_default):
    for root, spans in traces_of(by_default, route):
        if root.attributes["http.response.status_code"] != 200:
            continue
        by_id = {span.span_id: span for span in spans}
        stages = {span.name: span for span in spans if span.scope == "tuft.request_trace" and "(host:" not in span.name}
        order = ["PREPROCESS", "SCHEDULE", "PREFILL", "DECODE", "POSTPROCESS"]
        assert sorted(stages) == sorted(order)
        assert not stages["PREPROCESS"].links
        for before, after in zip(order, order[1:]):
            assert stages[after].links == [(root.trace_id, stages[before].span_id)], after
        assert stages["PREPROCESS"].resource["process.pid"] == by_default.server_pid
        assert stages["SCHEDULE"].resource["process.pid"] == by_default.worker_pid
        assert by_id[by_id[stages["PREPROCESS"].parent_id].parent_id] is root
        assert "http" in rows(spans)


def test_a_completion_has_one_request_id_on_all_its_spans_and_records(by_default):
    found = traces_of(by_default, COMPLETIONS)
    assert len(found) == 2
    for root, spans in found:
        request = root.attributes["tuft.request_id"]
        assert all(span.attributes["tuft.request_id"] == request for span in spans), spans
        logs = [log for log in by_default.logs() if log.trace_id == root.trace_id]
        assert logs and all(log.attributes["tuft.request_id"] == request for log in logs)
        assert {"PREPROCESS", "http", "work"} <= rows(spans), "also for a request that is refused"


def test_a_name_that_the_file_says_wins_over_the_environment(by_default):
    assert {span.resource["service.name"] for span in by_default.spans()} == {"tuft"}


def test_the_loss_on_spans_is_the_mean(by_default):
    spans = by_default.spans()
    worker = {span.parent_id: span for span in spans if span.name == "hf_model.forward_backward"}
    calls = {span.span_id: span for span in spans if span.name == "training_backend.forward_backward"}
    controllers = {span.span_id: span for span in spans if span.name == "training_controller.run_forward_backward"}
    assert worker
    for parent, span in worker.items():
        mean = controllers[calls[parent].parent_id].attributes["tuft.loss"]
        assert span.attributes["tuft.loss"] == pytest.approx(mean, rel=1e-6)
