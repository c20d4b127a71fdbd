"""What a user with a key can do to the telemetry of others through the intake, which takes whatever a program says about
itself: spans, log records and metrics that claim to be another user's, or the server's."""
import gzip
import http.client
import json
import os
import socket
import time

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from raw_client import RawClient
from test_observe import OBSERVE, requests_of, without_times
from tuft_server import ALICE, BOB, MODEL, TuftServer, configuration, free_port, wait_until

CAROL, MARK = "tml-carol", "intruder"
SERVER_METRIC = "tuft.futures.created"


@pytest.fixture(scope="module")
def intake():
    return free_port()


@pytest.fixture(scope="module")
def server(model_dir, tmp_path_factory, intake):
    config = configuration(model_dir, authorized_users={ALICE: "alice", BOB: "bob", CAROL: "carol"},
                           console={"operators": ["carol"]}, telemetry={"intake": {"http_port": intake}})
    with TuftServer(tmp_path_factory.mktemp("home"), config) as running:
        yield running


@pytest.fixture(scope="module")
def alice(server):
    return RawClient(server.url, ALICE)


@pytest.fixture(scope="module")
def bob(server):
    return RawClient(server.url, BOB)


@pytest.fixture(scope="module")
def operator(server):
    return RawClient(server.url, CAROL)


def ask(client, what):
    return client.request("GET", OBSERVE + what)


def seen(client, what):
    """An answer without what changes by itself."""
    answer = ask(client, what)
    return answer.status, json.dumps(without_times(json.loads(answer.body)), sort_keys=True)


@pytest.fixture(scope="module")
def ids(alice):
    """What alice has made, with the trace of a pass that has come to its end."""
    session = alice.session()
    model = alice.model(MODEL, session)
    alice.result(alice.train(model, 1), protobuf=True)
    alice.result(alice.optim(model, 2))

    def whole():
        found = ask(alice, "traces?operation=forward_backward&name=hf_model.forward_backward").json["traces"]
        if not found:
            return None
        trace = ask(alice, "traces/" + found[0]["trace_id"]).json
        names = {span["name"] for span in trace["spans"]}
        return trace if {"future_store.execute_operation", "POST /api/v1/forward_backward"} <= names else None
    trace = wait_until(whole, 20, "the trace of the pass is kept")
    wait_until(lambda: ask(alice, f"runs/{model}/steps").json["steps"], 20, "the step is kept")
    root = next(span for span in trace["spans"] if not span["parent_id"])
    return {"session": session, "run": model, "trace": trace["trace_id"], "root": root["span_id"],
            "request": next((span["attributes"]["tuft.request_id"] for span in trace["spans"]
                             if "tuft.request_id" in span["attributes"]), ""),
            "start": int(trace["start"] * 1000), "duration": int(trace["duration"] * 1000)}


def set_attributes(holder, values):
    for key, value in values.items():
        holder.attributes.add(key=key).value.string_value = value


def send(port, signal, message, key=BOB):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("POST", f"/v1/{signal}", message.SerializeToString(),
                       {"Content-Type": "application/x-protobuf", "x-api-key": key})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()


def false_spans(ids):
    """Spans in the other's trace, of the other's run and session, longer than it, with the names of the server's."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    set_attributes(resource.resource, {"service.name": "tuft", "tuft.user": "alice"})
    spans = resource.scope_spans.add().spans
    claims = {"tuft.user": "alice", "tuft.session_id": ids["session"], "tuft.training_run_id": ids["run"],
              "tuft.request_id": ids["request"], "tuft.operation_type": "forward_backward", "http.route": MARK,
              "tuft.queue_seconds": "1e300", "tuft.prompt_tokens": "1e300", "tuft.base_model": MODEL}
    for name in ("SCHEDULE", "PREFILL", "DECODE", "engine.pass", "training_backend.forward_backward",
                 "hf_model.forward_backward", "future_store.execute_operation", MARK):
        span = spans.add(name=name, trace_id=bytes.fromhex(ids["trace"]), span_id=os.urandom(8), kind=2,
                         parent_span_id=b"" if name == MARK else bytes.fromhex(ids["root"]))
        span.start_time_unix_nano = ids["start"] - 10**9
        span.end_time_unix_nano = ids["start"] + ids["duration"] + 10**9
        span.status.code = 2
        span.status.message = MARK
        set_attributes(span, claims)
        span.links.add(trace_id=bytes.fromhex(ids["trace"]), span_id=bytes.fromhex(ids["root"]))
    return request


def false_logs(ids):
    request = ExportLogsServiceRequest()
    resource = request.resource_logs.add()
    set_attributes(resource.resource, {"service.name": "tuft"})
    record = resource.scope_logs.add().log_records.add(
        time_unix_nano=time.time_ns(), severity_number=17, trace_id=bytes.fromhex(ids["trace"]),
        span_id=bytes.fromhex(ids["root"]), event_name="session.created")
    record.body.string_value = MARK
    set_attributes(record, {"tuft.user": "alice", "tuft.session_id": ids["session"], "tuft.training_run_id": ids["run"]})
    return request


def false_metrics():
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    set_attributes(resource.resource, {"service.name": "tuft"})
    metric = resource.scope_metrics.add().metrics.add(name=SERVER_METRIC)
    metric.sum.is_monotonic, metric.sum.aggregation_temporality = True, 1
    point = metric.sum.data_points.add(time_unix_nano=time.time_ns(), as_double=1e9)
    for key, value in {"tenant": "alice", "worker": MODEL, "mark": MARK}.items():
        point.attributes.add(key=key).value.string_value = value
    return request


def questions(ids):
    trace, run = ids["trace"], ids["run"]
    span = f"from={ids['start'] / 1000 - 5e6:.0f}&until={ids['start'] / 1000 + 5e6:.0f}"
    return [f"traces/{trace}", f"traces/{trace}/perfetto", f"traces?run={run}", f"traces?session={ids['session']}",
            f"traces/histogram?{span}&run={run}", f"traces/series?{span}&fn=busy&by=name&name=engine.*&step=1000000",
            f"traces?request={ids['request']}", f"logs?trace={trace}", f"logs?session={ids['session']}",
            f"logs?run={run}", f"runs/{run}/steps"]


def explained(client, ids):
    trace = ask(client, "traces/" + ids["trace"]).json
    return trace["explanation"], trace["critical_path"]


@pytest.fixture(scope="module")
def attacked(server, alice, bob, operator, ids, intake):
    """What was seen before bob's records came. They are kept when it returns."""
    own = {what: seen(alice, what) for what in questions(ids)}
    operations = ask(operator, "runs/" + ids["run"]).json["operations"]
    why = explained(operator, ids)
    metric = f"metrics/query?fn=increase&name={SERVER_METRIC}&step=600000000"
    wait_until(lambda: ask(operator, metric).status == 200, 20, "the server's metric is kept")
    send(intake, "traces", false_spans(ids))
    send(intake, "logs", false_logs(ids))
    send(intake, "metrics", false_metrics())
    wait_until(lambda: ask(bob, "logs?text=" + MARK).json["logs"], 20, "bob's log record is kept")
    wait_until(lambda: len(ask(bob, "traces/" + ids["trace"]).json.get("spans", [])) == 8, 20, "bob's spans are kept")
    wait_until(lambda: ask(bob, metric).status == 200, 20, "bob's metric is kept")
    return {"own": own, "operations": operations, "metric": metric, "why": why}


def test_nothing_of_the_owner_changes(attacked, alice, ids):
    for what, before in attacked["own"].items():
        assert seen(alice, what) == before, what


def test_no_route_shows_the_owner_what_was_sent(attacked, alice, operator, ids):
    paths = json.loads(operator.request("GET", "/openapi.json").body)["paths"]
    routes = {path: methods["get"] for path, methods in paths.items() if path.startswith(OBSERVE)}
    for path, operation in routes.items():
        for target in requests_of(path, operation, ids, "alice"):
            assert MARK not in alice.request("GET", target).body.decode("utf-8", "replace"), target


def test_the_sender_sees_only_what_was_sent(attacked, bob, ids):
    trace = ask(bob, "traces/" + ids["trace"]).json
    assert {span["user"] for span in trace["spans"]} == {"bob"} and len(trace["spans"]) == 8
    assert {log["user"] for log in trace["logs"]} == {"bob"}
    own = {span["span_id"] for span in trace["spans"]}
    assert ids["root"] not in own
    assert {one["span_id"] for one in trace["linked_from"]} <= own
    assert {piece["span_id"] for piece in trace["critical_path"]} <= own
    for what in ("runs/" + ids["run"], f"runs/{ids['run']}/steps"):
        assert ask(bob, what).status == 404
    assert ask(bob, "runs").json["runs"] == []


def test_an_operator_can_tell_who_sent_it(attacked, operator, ids):
    trace = ask(operator, "traces/" + ids["trace"]).json
    sent = [span for span in trace["spans"] if span["attributes"].get("http.route") == MARK]
    assert len(sent) == 8
    assert {(span["user"], span["service"]) for span in sent} == {("bob", "tuft (program)")}
    assert explained(operator, ids) == attacked["why"]
    assert MARK not in ask(operator, "traces?service=tuft&limit=1000").body.decode()
    assert MARK not in ask(operator, "logs?service=tuft&limit=1000").body.decode()
    assert ask(operator, "runs/" + ids["run"]).json["operations"] == attacked["operations"]
    answer = ask(operator, attacked["metric"]).json
    assert max(point or 0 for series in answer["series"] for point in series["points"]) < 1e6, "the server's own"


def test_the_bundle_has_nothing_of_programs(attacked, operator):
    archive = gzip.decompress(ask(operator, "bundle").body).decode("utf-8", "replace")
    assert "tuft-bundle/traces/" in archive and "session.created" in archive
    assert MARK not in archive, "an attribute of a program may be a prompt or a key"


def test_a_body_without_a_key_is_not_read(server, intake):
    for head in ("", "x-api-key: tml-mallory\r\n", "Authorization: Bearer x\r\n"):
        with socket.create_connection(("127.0.0.1", intake), timeout=20) as one:
            one.sendall((f"POST /v1/traces HTTP/1.1\r\nHost: a\r\n{head}Content-Type: application/x-protobuf\r\n"
                         "Content-Encoding: gzip\r\nContent-Length: 4000000\r\n\r\n").encode())
            assert one.recv(100).split()[1] in (b"401", b"403"), "the answer comes before the body"
