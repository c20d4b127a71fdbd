"""The work that the tests give a server, and functions that read its export."""
import json
import socket
from collections import Counter

import tinker
from tinker import types

from otlp_receiver import OtlpReceiver, attributes
from raw_client import RawClient, forward_backward
from tuft_server import ALICE, MODEL, TuftServer, configuration, wait_until

CANARY = "CANARY-prompt-5up3r"
ANSWER = "CANARY-answer-0k4y"
STRANGER = "tml-stranger"
SERVER = 2  # kind of a span
ERROR = 2  # status of a span


def train_and_sample(url, key=ALICE, steps=2, rank=8):
    """Uses every operation of the SDK once and returns the ids of the objects."""
    client = tinker.ServiceClient(base_url=url, api_key=key, user_metadata={"note": "x"})
    trainer = client.create_lora_training_client(base_model=MODEL, rank=rank, seed=1)
    tokens = list((CANARY + ANSWER).encode())
    datum = types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]),
                        loss_fn_inputs={"target_tokens": tokens[1:], "weights": [1.0] * (len(tokens) - 1)})
    for _ in range(steps):
        passed, stepped = (trainer.forward_backward([datum], "cross_entropy"),
                           trainer.optim_step(types.AdamParams(learning_rate=1e-3, grad_clip_norm=1e-6)))
        passed.result(), stepped.result()
    trainer.forward([datum], "cross_entropy").result()
    path = trainer.save_state("kept").result().path
    trainer.load_state_with_optimizer(path).result()
    named = trainer.save_weights_for_sampler("named").result().path
    params = types.SamplingParams(max_tokens=4, temperature=1.0)
    prompt = types.ModelInput.from_ints(list(CANARY.encode()))
    for sampler in (client.create_sampling_client(model_path=named), trainer.save_weights_and_get_sampling_client()):
        sampler.sample(prompt, num_samples=2, sampling_params=params).result()
    base = client.create_sampling_client(base_model=MODEL)
    base.sample(prompt, num_samples=2, sampling_params=params, include_prompt_logprobs=True).result()
    return trainer.get_info().model_id


def fail(url):
    """Causes one failure of each kind."""
    raw = RawClient(url, ALICE)
    model = raw.model(MODEL)
    failed = raw.result(raw.train(model, 1, forward_backward(model, 1, loss="no_such_loss")))
    assert failed.json["category"] == "user"
    sampler = raw.sampler(base_model=MODEL).json["sampling_session_id"]
    assert "error" in raw.result(raw.sample(sampler, 1, tokens=[10 ** 6])).json
    assert raw.sample(sampler, 2, max_tokens=10 ** 6).status == 400
    assert "model_id" in raw.result(raw.post("unload_model", {"model_id": model, "type": "unload_model"})).json
    raw.post("create_session", {}, {"X-API-Key": STRANGER})
    raw.post("get_info", {"model_id": model}, {"traceparent": "00-nonsense"})
    with socket.create_connection((raw.connection.host, raw.connection.port), timeout=30) as stranger:
        stranger.sendall(b"no HTTP\r\n\r\n")
        stranger.recv(1)  # an answer, or the end of the connection


def look(url):
    """Looks at the server as a person with the console and an assistant do."""
    raw = RawClient(url, ALICE)
    as_json = {"Content-Type": "application/json"}
    assert raw.request("POST", "/console/login", json.dumps({"key": ALICE}), as_json).status == 200
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "find_traces", "arguments": {}}}
    headers = {**as_json, "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
    answer = raw.request("POST", "/mcp", json.dumps(call), headers)
    assert answer.status == 200 and not answer.json["result"]["isError"], answer


def exports(receiver):
    """Returns the process of each metric export."""
    return [attributes(group.resource.attributes)["process.pid"] for request in receiver.requests("metrics")
            for group in request.resource_metrics]


def start_exporting(model_dir, home, **telemetry):
    """Starts a server that exports to its own receiver."""
    receiver = OtlpReceiver()
    config = configuration(model_dir, telemetry={
        "enabled": True, "service_name": "tuft-test", "otlp_endpoint": receiver.endpoint,
        "resource_attributes": {"deployment.environment": "test"}, **telemetry})
    server = TuftServer(home, config, env={"OTEL_METRIC_EXPORT_INTERVAL": "500", "TUFT_LOG_LEVEL": "debug"})
    return server.start(), receiver


def finish(server, receiver):
    """Stops the server after both processes have exported twice more, because gauges show the state at an export."""
    receiver.worker_pid, receiver.server_pid = server.worker_pids()[0], server.process.pid
    already = Counter(exports(receiver))
    wait_until(lambda: all(Counter(exports(receiver))[pid] >= already[pid] + 2 for pid in
                           (receiver.worker_pid, receiver.server_pid)), 30, "two more metric exports of both processes")
    status, seconds = server.stop()
    assert status == 0 and seconds < 5, server.log
    receiver.log = server.log


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
    """Returns the root and the spans of each trace that starts with a request to this route."""
    spans = receiver.spans()
    roots = [span for span in spans if span.name == f"POST {route}" and not span.parent_id]
    assert roots, sorted({span.name for span in spans})
    return [(root, [span for span in spans if span.trace_id == root.trace_id]) for root in roots]


def newest_points(receiver, name):
    """Returns (labels, point) of each series from its process' last export."""
    newest = {}
    for metric, resource in receiver.metrics():
        if metric.name == name:
            for point in getattr(metric, metric.WhichOneof("data")).data_points:
                labels = {pair.key: pair.value.string_value for pair in point.attributes}
                newest[resource["process.pid"], tuple(sorted(labels.items()))] = (labels, point)
    return list(newest.values())


def total(receiver, name, **wanted):
    """Returns a counter's or gauge's sum, or a histogram's number of values, over the series with these labels."""
    value = 0
    for labels, point in newest_points(receiver, name):
        if wanted.items() <= labels.items():
            value += point.count if hasattr(point, "bucket_counts") else point.as_int or point.as_double
    return value


def histogram_sum(receiver, name, **wanted):
    return sum(point.sum for labels, point in newest_points(receiver, name) if wanted.items() <= labels.items())
