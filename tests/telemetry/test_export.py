"""Checks the telemetry that a collector gets from the real programs: connected traces, the golden names, correlated
logs, no secrets.

TUFT_UPDATE_GOLDEN=1 writes the golden lists; read the difference before committing it."""
import os
import pathlib
import re
import struct

import pytest

from tuft_server import MODEL, USERS
from workload import ANSWER, CANARY, ERROR, SERVER, STRANGER, spans_below, total, traces_of, histogram_sum

HERE = pathlib.Path(__file__).parent
# They depend on a GPU, a block device or load, on a report that the client sends every 10 s, or on an earlier reader of
# the metrics.
OPTIONAL_METRICS = re.compile(r"hw\..*|tuft\.resource\.gpu\..*|tuft\.client\.events|system\.disk\.io|"
                              r"tuft\.http\.turn_wait\.duration|tuft\.futures\.try_again|tuft\.device\.time|"
                              r"tuft\.(training|sampling)\.mfu")
# What the workload of this test never leaves above 0: every other metric must have a value by its end.
STAYS_ZERO = {
    "back at 0 when nothing runs": """
        active_requests_count http.server.active_requests kv_cache_memory_bytes otel.sdk.processor.log.queue.size
        otel.sdk.processor.span.queue.size otel.sdk.span.live tuft.dispatch.in_flight tuft.dispatch.waiting tuft.futures.oldest_age
        tuft.futures.payload.bytes tuft.futures.queue_length tuft.futures.queued tuft.futures.ready_unread
        tuft.futures.running tuft.http.receiving.bytes tuft.http.sending.bytes tuft.kv_cache.fragmentation
        tuft.kv_cache.usage tuft.lora.requests.waiting_for_adapter tuft.scheduler.fairness.deficit.max
        tuft.scheduler.last_step.age tuft.scheduler.requests tuft.scheduler.samples waiting_requests_count""",
    "0 where the newest part of a prompt was computed while nothing was decoded": "decode_prefill_ratio",
    "needs more results in memory than the limit": "tuft.futures.evicted",
    "needs a full KV cache": """
        tuft.kv_cache.alloc_failures tuft.kv_cache.block.idle tuft.kv_cache.evictions tuft.scheduler.preempted.tokens
        tuft.scheduler.preemptions""",
    "needs a prompt that begins with a block of an earlier one": "tuft.kv_cache.block.reuse_gap tuft.prefix_cache.hits",
    "needs more adapters than fit into memory": """
        tuft.lora.adapters.paged tuft.lora.adapters.waiting tuft.lora.evictions tuft.lora.page.pending""",
    "needs a user over a limit": "tuft.quota.refusals",
    "needs weights or a loss that are not finite": "tuft.sampling.nonfinite_logits tuft.training.nonfinite",
    "needs samples that record log-probabilities": "tuft.sampling.records.active tuft.sampling.records.bytes",
    "needs requests of a run that arrive out of order": "tuft.sequence_guard.out_of_order",
    "needs a session that idles for long": "tuft.sessions.expired",
    "needs a collector that fails or refuses": "tuft.telemetry.rejected tuft.telemetry.retries",
    "needs a pass that does not fit into memory": "tuft.training.ooms",
    "needs a worker that ends": "tuft.worker.restarts",
}
OPTIONAL_SPANS = {"POST /api/v1/session_heartbeat", "sequence_guard.wait",
                  "engine.pass", "engine.train_pass"}  # the last two need requests of several runs in one pass
# The scopes whose spans also say the parameters of the operation.
DESCRIBED = {"tuft.http", "tuft.futures", "tuft.training_controller", "tuft.training_backend", "tuft.sampling_controller",
             "tuft.sampling_backend", "tuft.hf_training_model"}
CONTROLLER_OF = {"create_model": "create_model", "forward": "run_forward", "forward_backward": "run_forward_backward",
                 "optim_step": "run_optim_step", "save_weights": "save_checkpoint",
                 "save_weights_for_sampler": "save_checkpoint", "load_weights": "load_checkpoint"}


def plain(name):
    """Removes the machine and thread from the name of a request-tracing row."""
    return re.sub(r"\(host:.*\)$", "(host:* | pid:*)", name)


def spans_named(exported, name):
    found = [span for span in exported.spans() if span.name == name]
    assert found, name
    return found


# ---- traces


@pytest.mark.parametrize("route, expected", [
    ("/api/v1/create_model", ["training_controller.create_model", "training_backend.create_adapter", "hf_model.create_adapter"]),
    ("/api/v1/forward_backward", ["training_controller.run_forward_backward", "training_backend.forward_backward",
                                  "hf_model.forward_backward"]),
    ("/api/v1/optim_step", ["training_controller.run_optim_step", "training_backend.optim_step", "hf_model.optim_step"]),
    ("/api/v1/save_weights", ["training_controller.save_checkpoint", "training_backend.save_state", "hf_model.save_state"]),
    ("/api/v1/save_weights_for_sampler", ["training_controller.save_checkpoint", "training_backend.publish_adapter",
                                          "hf_model.publish_adapter"]),
    ("/api/v1/load_weights", ["training_controller.load_checkpoint", "training_backend.load_state", "hf_model.load_state"]),
    ("/api/v1/unload_model", ["training_backend.remove_adapter", "hf_model.remove_adapter"]),
    ("/api/v1/asample", ["sampling_controller.run_sample", "sampling_backend.sample", "hf_model.sample"]),
])
def test_one_connected_trace_reaches_from_the_request_into_the_worker(route, expected, exported):
    complete = 0
    for root, spans in traces_of(exported, route):
        assert root.kind == SERVER
        below = spans_below(spans, root)
        assert len(below) == len(spans), f"not below the request: {set(spans) - set(below)}"
        names = [span.name for span in below]
        if root.attributes["http.response.status_code"] >= 400:
            continue
        assert "future_store.execute_operation" in names
        if not all(name in names for name in expected):
            continue
        complete += 1
        assert {span.resource["process.pid"] for span in below} == {exported.server_pid, exported.worker_pid}, names
        by_id = {span.span_id: span for span in below}
        worker_span = next(span for span in below if span.name == expected[-1])
        chain, span = [], worker_span
        while span.parent_id:
            chain.append(span.name)
            span = by_id[span.parent_id]
        controllers = [name for name in expected[:-1] if name.split(".")[0].endswith("controller")]
        assert chain == [expected[-1], expected[-2], *controllers, "future_store.execute_operation"]
        assert worker_span.resource["process.pid"] == exported.worker_pid
        for span in below:
            assert span.start <= span.end
    assert complete, [[span.name for span in spans] for _, spans in traces_of(exported, route)]


def test_spans_of_an_operation_carry_its_keys(exported):
    """Checks every span of all processes: those of the trace that an operation is in, and the poll that fetched its result."""
    operations = spans_named(exported, "future_store.execute_operation")
    futures = {span.attributes["tuft.request_id"]: span for span in operations}
    by_trace = {span.trace_id: span for span in operations}
    assert len(futures) == len(by_trace) == len(operations)
    seen = set()
    for span in exported.spans():
        future = by_trace.get(span.trace_id) or futures.get(span.attributes.get("tuft.request_id"))
        if future is None:
            continue
        seen.add(plain(span.name))
        kind = future.attributes["tuft.operation_type"]
        assert span.attributes["tuft.operation_type"] == kind, span
        keys = ["tuft.session_id", "tuft.request_id", "tuft.sampling_session_id" if kind == "sample" else "tuft.training_run_id"]
        if span.scope in DESCRIBED and span.resource["process.pid"] == exported.server_pid:
            keys += ["tuft.base_model"] + ["tuft.lora_rank"] * ("tuft.lora_rank" in future.attributes)
        for key in keys:
            assert span.attributes[key] == future.attributes[key], (span, key)
        if kind in ("forward", "forward_backward") and span.scope in DESCRIBED and not span.name.startswith("engine."):
            assert span.attributes["tuft.backward"] == (kind == "forward_backward"), span
    operations = {span.attributes["tuft.operation_type"] for span in futures.values()}
    assert operations == {*CONTROLLER_OF, "unload_model", "sample"}
    assert {"POST /api/v1/retrieve_future", "POST /api/v1/asample", "sampling_backend.sample", "hf_model.sample",
            "training_backend.optim_step", "hf_model.optim_step", "http(host:* | pid:*)", "engine(host:* | pid:*)", "PREPROCESS",
            "SCHEDULE", "PREFILL", "DECODE", "POSTPROCESS", "engine.forward", "engine.backward"} <= seen


def test_spans_say_what_was_done(exported):
    for kind, name in CONTROLLER_OF.items():
        assert any(span.attributes["tuft.operation_type"] == kind for span in spans_named(exported, f"training_controller.{name}"))
    mine = [span for span in spans_named(exported, "training_controller.run_forward_backward")
            if span.attributes["tuft.training_run_id"] == exported.run]
    assert len(mine) == 2
    for span in mine:
        assert {"tuft.data_count", "tuft.loss_fn", "tuft.tokens", "tuft.loss"} <= span.attributes.keys()
        assert span.attributes["tuft.lora_rank"] == 8
    for span in spans_named(exported, "training_controller.run_optim_step"):
        assert {"tuft.learning_rate", "tuft.grad_norm", "tuft.step"} <= span.attributes.keys()
        assert span.attributes["tuft.grad_clipped"] is True
    for span in spans_named(exported, "training_controller.save_checkpoint"):
        assert span.attributes["tuft.checkpoint_type"] in ("training", "sampler")
    for span in spans_named(exported, "future_store.execute_operation"):
        # TuFT's name for the run, which is a label there and an attribute here (docs/coming-from.md).
        assert span.attributes.get("tuft.model_id") == span.attributes.get("tuft.training_run_id"), span
        if span.status != ERROR:
            assert span.attributes["tuft.wait_seconds"] >= 0 and span.attributes["tuft.execution_seconds"] > 0
    stages = {"PREPROCESS", "SCHEDULE", "PREFILL", "DECODE", "POSTPROCESS"}
    assert any(stages <= {span.name for span in spans} for _, spans in traces_of(exported, "/api/v1/asample"))
    session = spans_named(exported, "POST /api/v1/create_session")
    assert any(span.attributes.get("tuft.client.sdk_version") == "0.25.0" for span in session)


def test_http_spans_follow_the_conventions(exported):
    needed = {"http.request.method", "http.route", "http.response.status_code", "url.path", "url.scheme", "server.address",
              "server.port", "client.address", "client.port", "network.protocol.version", "http.request.body.size",
              "http.response.body.size"}
    http = [span for span in exported.spans() if span.kind == SERVER]
    for span in http:
        assert needed <= span.attributes.keys(), span
        assert span.name == f"{span.attributes['http.request.method']} {span.attributes['http.route']}"
        assert span.status != ERROR, "a 4xx counts as an error of the server"
    assert not [span for span in http if span.attributes["http.route"] in ("/metrics", "/api/v1/healthz", "/api/v1/telemetry")]
    refused = [span for span in http if span.attributes["http.response.status_code"] in (401, 403)]
    logged = [log.span_id for log in exported.logs() if log.event == "auth.failed"]
    assert [span.span_id for span in refused] == logged, "a stranger has a span only with a log record, one a second"


def test_a_poll_links_to_the_operation_that_it_delivered(exported):
    futures = {(span.trace_id, span.span_id): span for span in spans_named(exported, "future_store.execute_operation")}
    polls = spans_named(exported, "POST /api/v1/retrieve_future")
    delivered = [futures[link].attributes["tuft.request_id"] for span in polls for link in span.links]
    assert set(delivered) == {span.attributes["tuft.request_id"] for span in futures.values()}
    for span in polls:
        assert [futures[link].attributes["tuft.request_id"] for link in span.links] == [span.attributes["tuft.request_id"]]
    assert any("tuft.poll.iteration" in span.attributes for span in polls)


def test_a_step_of_the_sampler_links_to_the_calls_in_it_and_names_nobody(exported):
    calls = {(span.trace_id, span.span_id) for span in spans_named(exported, "sampling_backend.sample")}
    for step in spans_named(exported, "engine.step"):
        assert not step.parent_id and step.links and set(step.links) <= calls, step
        assert not {"tuft.session_id", "tuft.request_id", "tuft.sampling_session_id"} & step.attributes.keys()


def test_a_failed_operation_is_an_error_on_each_level_and_a_counted_one(exported):
    failed = [span for span in exported.spans() if span.status == ERROR]
    for span in failed:
        assert span.events.count("exception") == 1, span
        assert span.attributes["error.type"], span
    for level in ("future_store.execute_operation", "training_controller.run_forward_backward",
                  "training_backend.forward_backward", "hf_model.forward_backward", "sampling_controller.run_sample",
                  "sampling_backend.sample", "hf_model.sample"):
        assert [span for span in failed if span.name == level], level
    assert total(exported, "tuft.futures.completed", status="failed", error_category="user") == 2
    assert total(exported, "tuft.sampling.requests", status="failed") == 1
    assert total(exported, "tuft.requests.terminal", status="rejected", operation_type="sample", base_model=MODEL) == 1


# ---- names


def golden(name, found):
    path = HERE / name
    text = "\n".join(sorted(found)) + "\n"
    if os.environ.get("TUFT_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), f"{name} differs; if that is intended, run with TUFT_UPDATE_GOLDEN=1"


def test_the_span_names_are_the_golden_ones(exported):
    golden("golden_spans.txt", {plain(span.name) for span in exported.spans()} - OPTIONAL_SPANS)


def test_the_metric_names_are_the_golden_ones(exported):
    golden("golden_metrics.txt", {metric.name for metric, _ in exported.metrics() if not OPTIONAL_METRICS.fullmatch(metric.name)})


# ---- metrics


def recorded(exported):
    """Returns the metrics with a value other than 0 in any export: an idle server exports most others as 0, too."""
    found = set()
    for metric, _ in exported.metrics():
        points = getattr(metric, metric.WhichOneof("data")).data_points
        if any(point.count if hasattr(point, "bucket_counts") else point.as_int or point.as_double for point in points):
            found.add(metric.name)
    return found


def test_the_workload_is_in_the_golden_metrics(exported):
    golden_names = set((HERE / "golden_metrics.txt").read_text().split())
    stays_zero = set(" ".join(STAYS_ZERO.values()).split())
    assert stays_zero <= golden_names, "a name that no longer exists"
    missing = golden_names - recorded(exported) - stays_zero
    assert not missing, f"no value of {sorted(missing)}"


def test_metric_labels_come_from_closed_sets(exported):
    """An id is never a label."""
    ids = {value for span in exported.spans() for key, value in span.attributes.items() if key.startswith("tuft.") and
           key.endswith("_id")}
    series = {}
    for metric, resource in exported.metrics():
        data = getattr(metric, metric.WhichOneof("data"))
        for point in data.data_points:
            labels = {pair.key: pair.value.string_value for pair in point.attributes}
            assert not ids & set(labels.values()), (metric.name, labels)
            assert "otel.metric.overflow" not in labels, metric.name
            series.setdefault((metric.name, resource["process.pid"]), set()).add(tuple(sorted(labels.items())))
    largest = max(series, key=lambda key: len(series[key]))
    assert len(series[largest]) < 60 or largest[0].startswith("tuft.telemetry."), (largest, len(series[largest]))


def test_counts_agree_with_what_was_done(exported):
    assert total(exported, "tuft.futures.created", operation_type="optim_step") == 2
    assert total(exported, "tuft.futures.completed", operation_type="sample", status="ready") == 3
    assert total(exported, "tuft.sampling.requests", status="ok") == 3
    assert total(exported, "tuft.training.checkpoints.saved") == 3
    assert total(exported, "tuft.training.grad_clipped") == 2
    assert total(exported, "tuft.training.loss", loss_fn="cross_entropy") == 2
    assert total(exported, "tuft.futures.queue_length") == 0
    assert total(exported, "tuft.futures.queued") == total(exported, "tuft.futures.running") == 0
    assert total(exported, "tuft.training.models.active") == 1
    assert total(exported, "tuft.auth.failures", reason="unknown") == 1
    assert total(exported, "tuft.telemetry.context.malformed", header="traceparent") == 1
    assert total(exported, "tuft.telemetry.dropped") == 0


def test_totals_agree_with_each_other(exported):
    """Values that are counted in several places, including the worker, must be equal."""
    created, completed = total(exported, "tuft.futures.created"), total(exported, "tuft.futures.completed")
    assert created == completed
    assert total(exported, "tuft.requests.terminal") == created + total(exported, "tuft.requests.terminal", status="rejected")
    assert total(exported, "tuft.futures.wait_time") == total(exported, "tuft.futures.execution_time") == created
    assert total(exported, "tuft.futures.retrieve.polls") == created
    prompt, output = (total(exported, "tuft.sampling.tokens", kind=kind) for kind in ("prefill", "decode"))
    assert histogram_sum(exported, "gen_ai.client.token.usage", **{"gen_ai.token.type": "input"}) == prompt
    assert histogram_sum(exported, "gen_ai.client.token.usage", **{"gen_ai.token.type": "output"}) == output
    assert histogram_sum(exported, "tuft.sampling.output_tokens") == output
    assert total(exported, "tuft.sampling.finished") == 2 * 3 + 1
    assert total(exported, "tuft.training.step.duration", phase="backward") == 2
    answered = total(exported, "http.server.request.duration", **{"http.route": "/api/v1/asample"})
    assert answered == total(exported, "tuft.futures.created", operation_type="sample") + 1
    assert total(exported, "tuft.worker.rpc.duration", method="Sample") == 4


def test_both_processes_say_who_they_are(exported):
    resources = {span.resource["process.pid"]: span.resource for span in exported.spans()}
    assert set(resources) == {exported.server_pid, exported.worker_pid}
    for resource in resources.values():
        assert resource["service.name"] == "tuft-test"
        assert resource["deployment.environment"] == "test"
        assert resource["telemetry.sdk.language"] == "cpp"
    assert len({resource["service.instance.id"] for resource in resources.values()}) == 2


# ---- logs


def test_logs_are_correlated_with_their_spans(exported):
    logs, spans = exported.logs(), {(span.trace_id, span.span_id) for span in exported.spans()}
    inside = [log for log in logs if log.trace_id]
    assert inside, [log.body for log in logs]
    lost = [log.event for log in inside if (log.trace_id, log.span_id) not in spans]
    assert not lost
    assert {log.resource["process.pid"] for log in logs} == {exported.server_pid, exported.worker_pid}


def test_the_life_of_things_is_logged_with_ids(exported):
    logs = exported.logs()

    def of(event):
        found = [log for log in logs if log.event == event]
        assert found, event
        return found

    for event in ("server.starting", "server.ready", "server.draining", "worker.ready", "auth.failed"):
        of(event)
    assert all("tuft.session_id" in log.attributes for log in of("session.created"))
    for event in ("model.created", "model.unloaded", "checkpoint.save.completed", "checkpoint.load.completed"):
        assert all({"tuft.session_id", "tuft.training_run_id"} <= log.attributes.keys() and log.severity == "INFO"
                   for log in of(event)), event
    assert all("tuft.sampling_session_id" in log.attributes for log in of("sampling_session.created"))
    for event in ("future.enqueued", "future.begin", "future.completed"):
        assert all({"tuft.request_id", "tuft.operation_type"} <= log.attributes.keys() and log.severity == "DEBUG"
                   for log in of(event)), event
    assert all({"error.type", "tuft.request_id"} <= log.attributes.keys() and log.severity == "WARN"
               for log in of("future.failed"))
    assert all("tuft.loss" in log.attributes and "tuft.tokens" in log.attributes for log in of("forward_backward.completed"))
    assert all({"tuft.grad_norm", "tuft.learning_rate"} <= log.attributes.keys() for log in of("optim_step.completed"))
    routes = {log.attributes["http.route"] for log in of("http.access")}
    assert "/api/v1/asample" in routes and not routes & {"/api/v1/healthz", "/metrics"}


def test_no_prompt_token_or_key_is_in_any_exported_byte_or_log_line(exported):
    everything = exported.all_bytes() + exported.log.encode()
    secrets = [CANARY.encode(), ANSWER.encode(), STRANGER.encode(), *(key.encode() for key in USERS)]
    for text in (CANARY, ANSWER):
        tokens = list(text.encode())
        secrets += [", ".join(map(str, tokens[:6])).encode(), ",".join(map(str, tokens[:6])).encode(),
                    struct.pack("<6i", *tokens[:6]), struct.pack("<6q", *tokens[:6])]
    for secret in secrets:
        assert secret not in everything
