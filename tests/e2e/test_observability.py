"""What a real Collector and a real Jaeger get from tuft under the demo's load: `./dev e2e observability`."""

import pytest

import otlp_json
from world import SERVICES

SERVER = 2

BOTH = pytest.mark.parametrize("protocol", SERVICES)

# The descendants of each operation's request span, down to the worker. The SDK sends `forward` as forward_backward.
OPERATIONS = {
    "create_model": ["training_controller.create_model", "training_backend.create_adapter", "hf_model.create_adapter"],
    "forward": ["training_controller.run_forward", "training_backend.forward", "hf_model.forward"],
    "forward_backward": [
        "training_controller.run_forward_backward",
        "training_backend.forward_backward",
        "hf_model.forward_backward",
    ],
    "optim_step": ["training_controller.run_optim_step", "training_backend.optim_step", "hf_model.optim_step"],
    "save_weights": ["training_controller.save_checkpoint", "training_backend.save_state", "hf_model.save_state"],
    "save_weights_for_sampler": [
        "training_controller.save_checkpoint",
        "training_backend.publish_adapter",
        "hf_model.publish_adapter",
    ],
    "load_weights": ["training_backend.load_state", "hf_model.load_state"],
    "asample": ["sampling_controller.run_sample", "sampling_backend.sample", "hf_model.sample"],
}
OF_THE_DEMO = {"create_model", "forward_backward", "optim_step", "save_weights", "save_weights_for_sampler", "asample"}


@pytest.mark.parametrize(
    "protocol, operation",
    [
        (protocol, operation)
        for protocol in SERVICES
        for operation in OPERATIONS
        if protocol == "grpc" or operation in OF_THE_DEMO
    ],
)
def test_the_collector_holds_one_connected_trace_of_each_operation(world, protocol, operation):
    spans = world.spans_of(protocol)
    route = "/api/v1/" + ("forward_backward" if operation == "forward" else operation)
    roots = [span for span in spans if span.kind == SERVER and span.attributes.get("http.route") == route]
    assert roots, sorted({span.name for span in spans})
    complete = 0
    for root in roots:
        assert not root.parent_id
        trace = [span for span in spans if span.trace_id == root.trace_id]
        found = otlp_json.below(trace, root)
        assert len(found) == len(trace), f"not below the request: {set(trace) - set(found)}"
        names = [span.name for span in found]
        if OPERATIONS[operation][0] not in names or any(span.failed for span in found):
            continue  # another operation on this route, or one that was meant to fail
        if world.hit and world.hit in [span.attributes.get("tuft.sampling_session_id") for span in found]:
            continue  # run by the worker that was killed before it had sent its spans
        missing = {*OPERATIONS[operation], "future_store.execute_operation"} - set(names)
        assert not missing, f"{missing} not among {names}"
        (worker,) = {span.resource["process.pid"] for span in found if span.name == OPERATIONS[operation][-1]}
        assert worker != root.resource["process.pid"]
        assert all(span.start <= span.end for span in found)
        complete += 1
    assert complete, [[span.name for span in spans if span.trace_id == root.trace_id] for root in roots]


@BOTH
@pytest.mark.parametrize("key", ["tuft.session_id", "tuft.training_run_id", "tuft.sampling_session_id"])
def test_jaeger_finds_all_traces_of_an_id_and_no_others(world, protocol, key):
    spans = [span for span in world.spans_of(protocol) if key in span.attributes]
    ids = {span.attributes[key] for span in spans}
    assert ids
    # The ids with the most and with the fewest traces.
    by_traces = sorted(ids, key=lambda one: len({span.trace_id for span in spans if span.attributes[key] == one}))
    for one in {by_traces[-1], by_traces[0]}:
        expected = {span.trace_id for span in spans if span.attributes[key] == one}
        found = world.jaeger.traces(SERVICES[protocol], {key: one})
        assert {trace["traceID"] for trace in found} == expected


@BOTH
def test_jaeger_shows_the_whole_of_a_trace(world, protocol):
    runs = {
        span.attributes["tuft.training_run_id"]
        for span in world.spans_of(protocol)
        if "tuft.training_run_id" in span.attributes
    }
    traces = [trace for run in runs for trace in world.jaeger.traces(SERVICES[protocol], {"tuft.training_run_id": run})]
    names = {span["operationName"] for trace in traces for span in trace["spans"]}
    assert {
        "POST /api/v1/forward_backward",
        "training_controller.run_forward_backward",
        "hf_model.forward_backward",
    } <= names


@BOTH
def test_logs_carry_the_ids_of_spans_that_exist(world, protocol):
    logs = world.logs_of(protocol)
    spans = {(span.trace_id, span.span_id) for span in world.spans_of(protocol)}
    inside = [log for log in logs if log.trace_id]
    assert inside, [log.body for log in logs]
    lost = [log for log in inside if (log.trace_id, log.span_id) not in spans]
    assert not lost, lost


@BOTH
def test_metrics_reach_the_collector_from_server_and_worker(world, protocol):
    names, processes = set(), set()
    for line in world.did(protocol).collector.written("otel_metrics.json"):
        for group in line["resourceMetrics"]:
            resource = otlp_json.attributes(group["resource"]["attributes"])
            if resource["service.name"] == SERVICES[protocol]:
                processes.add(resource["process.pid"])
                names |= {metric["name"] for scope in group["scopeMetrics"] for metric in scope["metrics"]}
    assert len(processes) >= 2
    assert {
        "tuft.futures.completed",
        "tuft.training.tokens_per_second",
        "tuft.sampling.requests",
        "ttft_milliseconds",
        "tuft.scheduler.step.duration",
        "http.server.request.duration",
    } <= names
