"""Telemetry of users' own programs: over OTLP on ports of its own, under the key of the user, into the store that the query
API reads."""
import http.client
import os
import time
import urllib.parse

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

from raw_client import RawClient
from tuft_server import ALICE, BOB, TuftServer, configuration, free_port, wait_until


@pytest.fixture(scope="module")
def ports():
    return {"http_port": free_port(), "grpc_port": free_port()}


@pytest.fixture(scope="module")
def server(model_dir, tmp_path_factory, ports):
    with TuftServer(tmp_path_factory.mktemp("home"), configuration(model_dir, telemetry={"intake": ports})) as running:
        yield running


def request_with(name, trace_id):
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    service = resource.resource.attributes.add(key="service.name")
    service.value.string_value = "my-loop"
    span = resource.scope_spans.add().spans.add(name=name, trace_id=trace_id, span_id=os.urandom(8))
    span.start_time_unix_nano = time.time_ns() - 5_000_000
    span.end_time_unix_nano = span.start_time_unix_nano + 2_000_000
    return request


def post(port, body, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("POST", "/v1/traces", body, {"Content-Type": "application/x-protobuf", **headers})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def found(server, key, trace_id):
    answer = RawClient(server.url, key).request("GET", f"/api/v1/observe/traces/{trace_id.hex()}")
    return answer.json["spans"] if answer.status == 200 else []


def test_spans_over_http_are_those_of_the_key(server, ports):
    trace_id = os.urandom(16)
    # The headers of OTEL_EXPORTER_OTLP_HEADERS=x-api-key=...
    assert post(ports["http_port"], request_with("my.step", trace_id).SerializeToString(), **{"x-api-key": ALICE}) == 200
    [span] = wait_until(lambda: found(server, ALICE, trace_id), 20, "the span can be found")
    assert (span["name"], span["service"], span["user"]) == ("my.step", "my-loop", "alice")
    assert not found(server, BOB, trace_id), "it is nobody else's"
    query = urllib.parse.urlencode({"service": "my-loop", "name": "my.*"})
    listed = RawClient(server.url, ALICE).request("GET", f"/api/v1/observe/traces?{query}").json["traces"]
    assert [one["trace_id"] for one in listed] == [trace_id.hex()]


def test_spans_over_grpc_are_those_of_the_key(server, ports):
    trace_id = os.urandom(16)
    with grpc.insecure_channel(f"127.0.0.1:{ports['grpc_port']}") as channel:
        stub = TraceServiceStub(channel)
        stub.Export(request_with("my.step", trace_id), metadata=[("authorization", f"Bearer {BOB}")], timeout=20)
        with pytest.raises(grpc.RpcError) as refused:
            stub.Export(request_with("my.step", trace_id), timeout=20)
    assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
    assert wait_until(lambda: found(server, BOB, trace_id), 20, "the span can be found")[0]["user"] == "bob"


def test_the_answer_says_what_is_not_kept(server, ports):
    request = request_with("my.step", os.urandom(16))
    request.resource_spans[0].scope_spans[0].spans.add(name="without ids")
    with grpc.insecure_channel(f"127.0.0.1:{ports['grpc_port']}") as channel:
        answer = TraceServiceStub(channel).Export(request, metadata=[("x-api-key", ALICE)], timeout=20)
    assert answer.partial_success.rejected_spans == 1
    assert "without a trace_id or a span_id" in answer.partial_success.error_message
    connection = http.client.HTTPConnection("127.0.0.1", ports["http_port"], timeout=20)
    connection.request("POST", "/v1/traces", request.SerializeToString(),
                       {"Content-Type": "application/x-protobuf", "x-api-key": ALICE})
    reply = connection.getresponse()
    assert reply.status == 200
    assert ExportTraceServiceResponse.FromString(reply.read()) == answer


def test_no_key_and_what_is_no_request_are_refused(server, ports):
    body = request_with("my.step", os.urandom(16)).SerializeToString()
    assert post(ports["http_port"], body) == 401
    assert post(ports["http_port"], b"\xff\xff\xff", **{"x-api-key": ALICE}) == 400
    assert post(urllib.parse.urlsplit(server.url).port, body, **{"x-api-key": ALICE}) in (404, 405), "only the port of its own"
