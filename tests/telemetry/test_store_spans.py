"""Checks that operations on the persistent store are in the trace of the request or operation that needs them."""
import pytest

import redis_server
import workload
from otlp_receiver import OtlpReceiver
from raw_client import RawClient, forward_backward
from redis_server import RedisServer
from tuft_server import ALICE, MODEL, TuftServer, configuration
from workload import SERVER, spans_below, traces_of

CLIENT = 3  # kind of a span
KEYS = {"tuft.session_id", "tuft.training_run_id", "tuft.sampling_session_id", "tuft.request_id", "tuft.operation_type",
        "tuft.base_model"}


@pytest.fixture(scope="module", params=["REDIS", "FILE"])
def stored(request, model_dir, tmp_path_factory):
    directory = tmp_path_factory.mktemp("stored")
    redis = None
    persistence = {"mode": request.param}
    if request.param == "REDIS":
        if redis_server.MISSING:
            pytest.skip(redis_server.MISSING)
        redis = RedisServer(directory / "redis").start()
        persistence["redis_url"] = redis.url
    receiver = OtlpReceiver()
    server = TuftServer(directory / "home",
                        configuration(model_dir, persistence=persistence, telemetry={
                            "enabled": True, "service_name": "tuft-test", "otlp_endpoint": receiver.endpoint}),
                        env={"OTEL_METRIC_EXPORT_INTERVAL": "500"}).start()
    raw = RawClient(server.url, ALICE)
    model = raw.model(MODEL)
    assert raw.result(raw.train(model, 1, forward_backward(model, 1)), protobuf=True).status == 200
    assert raw.result(raw.optim(model, 2)).status == 200
    assert raw.result(raw.post("unload_model", {"model_id": model, "type": "unload_model"})).status == 200
    workload.finish(server, receiver)
    receiver.mode = request.param
    receiver.prefix = "redis." if request.param == "REDIS" else "store."
    receiver.redis = redis
    yield receiver
    receiver.stop()
    if redis:
        redis.kill()


@pytest.mark.parametrize("route", ["create_session", "create_model", "forward_backward", "optim_step", "unload_model"])
def test_the_writes_of_a_request_are_in_its_trace(route, stored):
    traces = traces_of(stored, "/api/v1/" + route)
    assert traces
    for root, spans in traces:
        assert root.kind == SERVER
        below = spans_below(spans, root)
        assert len(below) == len(spans), f"not below the request: {set(spans) - set(below)}"
        sets = [span for span in below if span.name == stored.prefix + "SET"]
        by_id = {span.span_id: span for span in below}
        parents = {by_id[span.parent_id].name for span in sets}
        if route == "create_session":
            assert parents == {root.name}
        else:
            # The submission is stored before its answer, and the result before its delivery.
            # The audit record of a new run is written by its controller.
            assert parents - {"training_controller.create_model"} == {root.name, "future_store.execute_operation"}
            submitted = min(span.end for span in sets)
            assert root.start <= submitted <= root.end
        if route == "unload_model":
            assert [span for span in below if span.name == stored.prefix + "DEL"]


def test_a_store_span_carries_the_keys_of_what_caused_it(stored):
    spans = stored.spans()
    store = [span for span in spans if span.name.startswith(stored.prefix)]
    operations = {span.trace_id: span for span in spans if span.name == "future_store.execute_operation"}
    written = [span for span in store if span.trace_id in operations]
    assert len(written) > 8
    for span in written:
        operation = operations[span.trace_id]
        for key in ("tuft.session_id", "tuft.training_run_id", "tuft.request_id", "tuft.operation_type"):
            assert span.attributes[key] == operation.attributes[key], (span, key)
    sessions = {root.attributes["tuft.session_id"]: inside for root, inside in traces_of(stored, "/api/v1/create_session")}
    for session, inside in sessions.items():
        # The session itself and its audit record.
        assert [span.attributes["tuft.session_id"] for span in inside if span.name == stored.prefix + "SET"] == [session] * 2


def test_a_store_span_is_a_root_only_for_what_no_request_waits_for(stored):
    """Without sessions that fall silent and results that are dropped, these are the lines of the usage report alone."""
    roots = [span for span in stored.spans() if span.name == stored.prefix + "SET" and not span.parent_id]
    assert not [span for span in roots if KEYS & span.attributes.keys()], roots
    assert len(roots) <= 2, roots


def test_store_spans_say_what_was_asked_of_whom_and_nothing_else(stored):
    spans = [span for span in stored.spans() if span.name.startswith(stored.prefix)]
    assert {span.name.removeprefix(stored.prefix) for span in spans} == {"SET", "GET", "DEL", "SCAN"}
    system = "redis" if stored.mode == "REDIS" else "sqlite"
    for span in spans:
        operation = span.name.removeprefix(stored.prefix)
        assert span.kind == CLIENT
        assert span.attributes["db.system"] == span.attributes["db.system.name"] == system
        assert span.attributes["db.operation"] == span.attributes["db.operation.name"] == operation
        assert span.scope == ("tuft.redis_store" if stored.mode == "REDIS" else "tuft.store")
        allowed = {"db.system", "db.system.name", "db.operation", "db.operation.name", "db.namespace", "server.address"}
        assert set(span.attributes) <= allowed | KEYS
        assert ("server.address" in span.attributes) == (stored.mode == "REDIS")


def test_durations_are_recorded(stored):
    found = {metric.name for metric, _ in stored.metrics()}
    assert "db.client.operation.duration" in found
    assert ("tuft.redis.operation.duration" in found) == (stored.mode == "REDIS")
