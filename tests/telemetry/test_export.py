"""What a collector gets from a run of the real programs: connected traces, the golden names, correlated logs, no secrets.

TUFT_UPDATE_GOLDEN=1 writes the golden lists anew; read the difference before committing it.
"""
import os
import pathlib
import struct
from collections import Counter

import pytest
import tinker
from tinker import types

from otlp_receiver import OtlpReceiver, attributes
from raw_client import RawClient, forward_backward
from tuft_server import ALICE, MODEL, USERS, TuftServer, configuration, wait_until

HERE = pathlib.Path(__file__).parent
CANARY = "CANARY-prompt-5up3r"
ANSWER = "CANARY-answer-0k4y"
# Where there is a GPU; where the client has reported by itself, which it does every 10 s.
OPTIONAL_METRICS = {"tuft.resource.gpu.utilization_percent", "tuft.resource.gpu.memory_used_bytes",
                    "tuft.resource.gpu.memory_total_bytes", "tuft.client.events"}
OPTIONAL_SPANS = {"POST /api/v1/session_heartbeat"}
SERVER, INTERNAL, CLIENT = 2, 1, 3
ERROR = 2


def work(url):
    """Every operation once, a poll that must wait, and one failure; gives the ids that were used."""
    client = tinker.ServiceClient(base_url=url, api_key=ALICE, user_metadata={"note": "x"})
    trainer = client.create_lora_training_client(base_model=MODEL, rank=8, seed=1)
    tokens = list((CANARY + ANSWER).encode())
    datum = types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]),
                        loss_fn_inputs={"target_tokens": tokens[1:], "weights": [1.0] * (len(tokens) - 1)})
    for _ in range(2):
        trainer.forward_backward([datum], "cross_entropy").result()
        trainer.optim_step(types.AdamParams(learning_rate=1e-3)).result()
    trainer.forward([datum], "cross_entropy").result()
    path = trainer.save_state("kept").result().path
    trainer.load_state_with_optimizer(path).result()
    named = trainer.save_weights_for_sampler("named").result().path
    params = types.SamplingParams(max_tokens=4, temperature=1.0)
    prompt = types.ModelInput.from_ints(list(CANARY.encode()))
    for sampler in (client.create_sampling_client(model_path=named), trainer.save_weights_and_get_sampling_client(),
                    client.create_sampling_client(base_model=MODEL)):
        sampler.sample(prompt, num_samples=2, sampling_params=params).result()
    raw = RawClient(url, ALICE)
    failing = raw.model(MODEL)
    failed = raw.result(raw.train(failing, 1, forward_backward(failing, 1, loss="no_such_loss")))
    assert "error" in failed.json
    raw.result(raw.post("unload_model", {"model_id": failing, "type": "unload_model"}))
    raw.post("create_session", {}, {"X-API-Key": "tml-stranger"})
    return trainer.get_info().model_id


def exports(receiver):
    """The process of each metric export."""
    return [attributes(group.resource.attributes)["process.pid"] for request in receiver.requests("metrics")
            for group in request.resource_metrics]


@pytest.fixture(scope="module")
def exported(model_dir, tmp_path_factory):
    receiver = OtlpReceiver()
    config = configuration(model_dir, telemetry={
        "enabled": True, "service_name": "tuft-test", "otlp_endpoint": receiver.endpoint,
        "resource_attributes": {"deployment.environment": "test"}})
    server = TuftServer(tmp_path_factory.mktemp("home"), config, env={"OTEL_METRIC_EXPORT_INTERVAL": "500"})
    server.start()
    receiver.run = work(server.url)
    receiver.worker_pid, receiver.server_pid = server.worker_pids()[0], server.process.pid
    # Gauges show only what is there when they are read: two readings of each process after the work.
    already = Counter(exports(receiver))
    wait_until(lambda: all(Counter(exports(receiver))[pid] >= already[pid] + 2 for pid in
                           (receiver.worker_pid, receiver.server_pid)), 30, "two more metric exports of both processes")
    status, seconds = server.stop()
    assert status == 0 and seconds < 5, server.log
    receiver.log = server.log
    yield receiver
    receiver.stop()


def spans_below(spans, root):
    children = {}
    for span in spans:
        children.setdefault(span.parent_id, []).append(span)
    found, todo = [], [root]
    while todo:
        span = todo.pop()
        found.append(span)
        todo += children.get(span.span_id, [])
    return found


def traces_of(receiver, route):
    """The spans of each trace that a request to this route began."""
    spans = receiver.spans()
    roots = [span for span in spans if span.name == f"POST {route}" and not span.parent_id]
    assert roots, sorted({span.name for span in spans})
    return [(root, [span for span in spans if span.trace_id == root.trace_id]) for root in roots]


@pytest.mark.parametrize("route, expected", [
    ("/api/v1/create_model", ["training_controller.create_model", "training_backend.create_adapter", "hf_model.create_adapter"]),
    ("/api/v1/forward_backward", ["training_controller.run_forward_backward", "training_backend.forward_backward",
                                  "hf_model.forward_backward"]),
    ("/api/v1/optim_step", ["training_controller.run_optim_step", "training_backend.optim_step", "hf_model.optim_step"]),
    ("/api/v1/save_weights", ["training_controller.save_checkpoint", "training_backend.save_state", "hf_model.save_state"]),
    ("/api/v1/save_weights_for_sampler", ["training_controller.save_checkpoint", "training_backend.save_state",
                                          "hf_model.save_state"]),
    ("/api/v1/load_weights", ["training_backend.load_state", "hf_model.load_state"]),
    ("/api/v1/asample", ["sampling_controller.run_sample", "sampling_backend.sample", "hf_model.sample"]),
])
def test_one_connected_trace_reaches_from_the_request_into_the_worker(route, expected, exported):
    complete = 0
    for root, spans in traces_of(exported, route):
        assert root.kind == SERVER
        below = spans_below(spans, root)
        assert len(below) == len(spans), f"not below the request: {set(spans) - set(below)}"
        names = [span.name for span in below]
        assert "future_store.execute_operation" in names
        if all(name in names for name in expected):
            complete += 1
            processes = {span.resource["process.pid"] for span in below}
            assert processes == {exported.server_pid, exported.worker_pid}, names
            worker_span = next(span for span in below if span.name == expected[-1])
            assert worker_span.resource["process.pid"] == exported.worker_pid
            for span in below:
                assert span.start <= span.end
    assert complete, [[span.name for span in spans] for _, spans in traces_of(exported, route)]


def test_spans_carry_the_keys_that_they_concern(exported):
    def of(name):
        found = [span for span in exported.spans() if span.name == name]
        assert found, name
        return found

    for span in of("training_controller.create_model"):
        assert {"tuft.session_id", "tuft.base_model", "tuft.lora_rank"} <= span.attributes.keys()
    mine = [span for span in of("training_controller.run_forward_backward")
            if span.attributes["tuft.training_run_id"] == exported.run]
    assert len(mine) == 2
    for span in mine:
        assert {"tuft.session_id", "tuft.backward", "tuft.data_count", "tuft.loss_fn"} <= span.attributes.keys()
    for span in of("training_controller.run_optim_step"):
        assert {"tuft.session_id", "tuft.training_run_id", "tuft.learning_rate"} <= span.attributes.keys()
    for span in of("training_controller.save_checkpoint"):
        assert span.attributes["tuft.checkpoint_type"] in ("training", "sampler")
    for span in of("sampling_controller.run_sample"):
        assert {"tuft.session_id", "tuft.sampling_session_id", "tuft.num_samples"} <= span.attributes.keys()
    for span in of("future_store.execute_operation"):
        assert {"tuft.request_id", "tuft.operation_type"} <= span.attributes.keys()
    for span in of("POST /api/v1/asample"):
        assert span.attributes["http.request.method"] == "POST"
        assert span.attributes["http.route"] == "/api/v1/asample"
        assert span.attributes["http.response.status_code"] in (200, 202)


def test_a_failed_operation_is_an_error_in_its_trace_and_a_counted_one(exported):
    failed = [span for span in exported.spans() if span.name == "future_store.execute_operation" and span.status == ERROR]
    assert failed and all("exception" in span.events for span in failed)
    fine = [span for span in exported.spans() if span.name == "future_store.execute_operation" and span.status != ERROR]
    assert fine
    points = [point for metric, _ in exported.metrics() if metric.name == "tuft.futures.completed" for point in metric.sum.data_points]
    statuses = {pair.value.string_value for point in points for pair in point.attributes if pair.key == "status"}
    assert statuses == {"ready", "failed"}


def golden(name, found):
    path = HERE / name
    text = "\n".join(sorted(found)) + "\n"
    if os.environ.get("TUFT_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), f"{name} differs; if it is meant, run with TUFT_UPDATE_GOLDEN=1"


def test_the_span_names_are_the_golden_ones(exported):
    golden("golden_spans.txt", {span.name for span in exported.spans()} - OPTIONAL_SPANS)


def test_the_metric_names_are_the_golden_ones(exported):
    golden("golden_metrics.txt", {metric.name for metric, _ in exported.metrics()} - OPTIONAL_METRICS)


def test_metric_labels_come_from_closed_sets(exported):
    """No id is ever a label."""
    series = {}
    for metric, resource in exported.metrics():
        data = getattr(metric, metric.WhichOneof("data"))
        for point in data.data_points:
            labels = {pair.key: pair.value.string_value for pair in point.attributes}
            assert exported.run not in labels.values() and not any(":train:" in value or ":sample:" in value for value in labels.values())
            assert "otel.metric.overflow" not in labels
            series.setdefault((metric.name, resource["process.pid"]), set()).add(tuple(sorted(labels.items())))
    assert max(map(len, series.values())) < 60


def test_counts_agree_with_what_was_done(exported):
    def total(name, **labels):
        last = {}
        for metric, resource in exported.metrics():
            if metric.name == name:
                for point in metric.sum.data_points:
                    key = tuple(sorted((pair.key, pair.value.string_value) for pair in point.attributes))
                    if all(item in key for item in labels.items()):
                        last[resource["process.pid"], key] = point.as_int or point.as_double
        return sum(last.values())

    assert total("tuft.futures.created", operation_type="optim_step") == 2
    assert total("tuft.futures.completed", operation_type="sample", status="ready") == 3
    assert total("tuft.sampling.requests") == 3
    assert total("tuft.training.checkpoints.saved") == 3
    assert total("tuft.futures.queue_length") == 0
    assert total("tuft.telemetry.dropped") == 0


def test_both_processes_say_who_they_are(exported):
    resources = {span.resource["process.pid"]: span.resource for span in exported.spans()}
    assert set(resources) == {exported.server_pid, exported.worker_pid}
    for resource in resources.values():
        assert resource["service.name"] == "tuft-test"
        assert resource["deployment.environment"] == "test"
        assert resource["telemetry.sdk.language"] == "cpp"
    assert len({resource["service.instance.id"] for resource in resources.values()}) == 2


def test_logs_are_correlated_with_their_spans(exported):
    logs, spans = exported.logs(), {(span.trace_id, span.span_id) for span in exported.spans()}
    assert any("serving" in log.body for log in logs)
    inside = [log for log in logs if log.trace_id]
    assert inside, [log.body for log in logs]
    assert all((log.trace_id, log.span_id) in spans for log in inside)
    assert {log.resource["process.pid"] for log in logs} == {exported.server_pid, exported.worker_pid}


def test_no_prompt_token_or_key_is_in_any_exported_byte_or_log_line(exported):
    everything = exported.all_bytes() + exported.log.encode()
    secrets = [CANARY.encode(), ANSWER.encode(), b"tml-stranger", *(key.encode() for key in USERS)]
    for text in (CANARY, ANSWER):
        tokens = list(text.encode())
        secrets += [", ".join(map(str, tokens[:6])).encode(), ",".join(map(str, tokens[:6])).encode(),
                    struct.pack("<6i", *tokens[:6]), struct.pack("<6q", *tokens[:6])]
    for secret in secrets:
        assert secret not in everything
