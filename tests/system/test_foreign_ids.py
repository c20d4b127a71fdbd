"""Checks every route that takes an id: another user's id gets the same answer, byte by byte, as an id that never
existed, so that nobody learns which ids exist. The last test fails if a route that takes an id has no row here."""
import json
import uuid

import pytest

from raw_client import RawClient, forward_backward
from tuft_server import ALICE, BOB, MODEL, wait_until

# traceresponse names the trace of the request itself, which the embedded store keeps by default.
HEADERS_THAT_DIFFER = {"date", "content-length", "traceresponse"}
# The fields of queries and bodies that identify an object.
ID_FIELDS = {"session_id", "model_id", "sampling_session_id", "request_id", "tinker_path", "model_path",
             "source_path"}


def everything_of(client):
    """Makes one of each object that a user can own."""
    session = client.session()
    model = client.model(MODEL, session)
    saved = client.result(client.post("save_weights", {"model_id": model, "path": "kept", "seq_id": 1}))
    named = client.result(client.post("save_weights_for_sampler", {"model_id": model, "path": "kept", "seq_id": 2}))
    sampler = client.sampler(session, model_path=named.json["path"]).json["sampling_session_id"]
    future = client.sample(sampler, 1)
    client.result(future, protobuf=True)
    client.result(client.post("save_weights_external", {"model_id": model, "path": "kept", "seq_id": 3}))
    kept = wait_until(lambda: client.get(f"observe/traces?from=-1h&run={model}&limit=1").json["traces"], 20,
                      "a trace of the run is kept")
    return {"session": session, "model": model, "state": saved.json["path"], "weights": named.json["path"],
            "sampler": sampler, "future": future.json["request_id"], "trace": kept[0]["trace_id"]}


def never_were(things):
    """Returns ids of the same form that do not exist."""
    session = str(uuid.uuid4())
    made = {"future": str(uuid.uuid4()), "trace": uuid.uuid4().hex}
    return {name: made[name] if name in made else value.replace(things["session"], session)
            for name, value in things.items()}


@pytest.fixture(scope="module")
def alices(server):
    return everything_of(RawClient(server.url, ALICE))


@pytest.fixture(scope="module")
def finished(server):
    """The objects of a session that alice has ended."""
    client = RawClient(server.url, ALICE)
    things = everything_of(client)
    assert client.post(f"sessions/{things['session']}/finish", {}).status == 200
    return things


@pytest.fixture(scope="module")
def bobs(server):
    return everything_of(RawClient(server.url, BOB))


def post(path, /, **body):
    return lambda client, it, own: client.post(path, {key: value(it, own) if callable(value) else value
                                                      for key, value in body.items()})


def of(name):
    return lambda it, own: it[name]


def own(name):
    return lambda it, own: own[name]


def at(method, pattern, body=None):
    def ask(client, it, own):
        kind = {"run": it["model"], **it}
        return client.request(method, "/api/v1/" + pattern.format(**kind), body and json.dumps(body),
                              {"Content-Type": "application/json"})
    return ask


def of_the_future(ask):
    """If the submission is accepted, returns its result."""
    def asked(client, it, own):
        submitted = ask(client, it, own)
        return client.result(submitted) if submitted.status == 200 else submitted
    return asked


def openai(method, path, body=None):
    def ask(client, it, own):
        content = body and json.dumps({"model": it[body], "max_tokens": 1, "prompt": "x",
                                       "messages": [{"role": "user", "content": "x"}]})
        return client.request(method, "/oai/api/v1/" + path.format(**it), content, {"Content-Type": "application/json"})
    return ask


DATA = [{"model_input": {"chunks": [{"tokens": [1, 2], "type": "encoded_text"}]},
         "loss_fn_inputs": {"target_tokens": {"data": [2, 3], "dtype": "int64"}}}]
PASS = {"data": DATA, "loss_fn": "cross_entropy"}
CHECKPOINT = "training_runs/{run}/checkpoints/weights/kept"
PROMPT = {"chunks": [{"tokens": [1, 2], "type": "encoded_text"}]}
LORA = {"rank": 4}

# (route, the id that is tested, the status) -> the request
ROWS = {
    ("POST /api/v1/session_heartbeat", "session", 404): post("session_heartbeat", session_id=of("session")),
    ("GET /api/v1/sessions/{session_id}", "session", 404): at("GET", "sessions/{session}"),
    ("POST /api/v1/sessions/search", "session", 200): post("sessions/search", session_id=of("session")),
    ("PUT /api/v1/sessions/{session_id}/project", "session", 404): at("PUT", "sessions/{session}/project",
                                                                      {"project_id": "p"}),
    ("POST /api/v1/sessions/{session_id}/finish", "session", 404): at("POST", "sessions/{session}/finish"),
    ("GET /api/v1/sessions/{session_id}/trace_export", "session", 404): at("GET", "sessions/{session}/trace_export"),
    ("POST /api/v1/telemetry", "never looked up", 200): post("telemetry", session_id=of("session"), events=[]),
    ("GET /api/v1/training_runs/{run_id}", "run", 404): at("GET", "training_runs/{run}"),
    ("GET /api/v1/training_runs/{run_id}", "accessible", 404): at("GET", "training_runs/{run}?access_scope=accessible"),
    ("GET /api/v1/training_runs/{run_id}/checkpoints", "run", 404): at("GET", "training_runs/{run}/checkpoints"),
    ("DELETE /api/v1/training_runs/{run_id}/checkpoints/{kind}/{name}", "path", 404): at("DELETE", CHECKPOINT),
    ("POST /api/v1/training_runs/{run_id}/checkpoints/{kind}/{name}/publish", "path", 404): at("POST", CHECKPOINT + "/publish"),
    ("DELETE /api/v1/training_runs/{run_id}/checkpoints/{kind}/{name}/publish", "path", 404): at("DELETE", CHECKPOINT + "/publish"),
    ("PUT /api/v1/training_runs/{run_id}/checkpoints/{kind}/{name}/ttl", "path", 404): at("PUT", CHECKPOINT + "/ttl",
                                                                                         {"ttl_seconds": 60}),
    ("GET /api/v1/training_runs/{run_id}/checkpoints/{kind}/{name}/archive", "path", 404): at("GET", CHECKPOINT + "/archive"),
    ("GET /api/v1/training_runs/{run_id}/checkpoints/external_weights/{name}/external_weights_urls", "path", 404): at(
        "GET", "training_runs/{run}/checkpoints/external_weights/kept/external_weights_urls"),
    ("POST /api/v1/copy_weights", "path", 404): post("copy_weights", source_path=of("state")),
    ("POST /api/v1/copy_weights", "with a token", 404): post("copy_weights", source_path=of("state"),
                                                             weights_access_token=BOB),
    ("POST /api/v1/create_model", "session", 404): post("create_model", session_id=of("session"), model_seq_id=0,
                                                        base_model=MODEL, lora_config=LORA),
    ("POST /api/v1/get_info", "run", 404): post("get_info", model_id=of("model")),
    ("POST /api/v1/weights_info", "path", 404): post("weights_info", tinker_path=of("state")),
    ("POST /api/v1/weights_info", "sampler path", 404): post("weights_info", tinker_path=of("weights")),
    ("POST /api/v1/unload_model", "run", 404): post("unload_model", model_id=of("model")),
    ("POST /api/v1/forward", "run", 404): post("forward", model_id=of("model"), seq_id=1, forward_input=PASS),
    ("POST /api/v1/forward_backward", "run", 404): lambda client, it, own: client.post_protobuf(
        "forward_backward", forward_backward(it["model"], 1)),
    ("POST /api/v1/forward_backward", "JSON", 404): post("forward_backward", model_id=of("model"), seq_id=1,
                                                         forward_backward_input=PASS),
    ("POST /api/v1/optim_step", "run", 404): post("optim_step", model_id=of("model"), seq_id=1, adam_params={}),
    ("POST /api/v1/save_weights", "run", 404): post("save_weights", model_id=of("model"), seq_id=1, path="x"),
    ("POST /api/v1/save_weights_for_sampler", "run", 404): post("save_weights_for_sampler", model_id=of("model"),
                                                                seq_id=2, path="kept"),
    ("POST /api/v1/save_weights_external", "run", 404): post("save_weights_external", model_id=of("model"), seq_id=3,
                                                             path="x"),
    ("POST /api/v1/load_weights", "run", 404): post("load_weights", model_id=of("model"), seq_id=1, path=own("state")),
    ("POST /api/v1/load_weights", "session", 404): post("load_weights", session_id=of("session"), model_seq_id=0,
                                                        path=own("state"), optimizer=False),
    ("POST /api/v1/load_weights", "path into a new model", None): of_the_future(
        post("load_weights", session_id=own("session"), model_seq_id=77, path=of("state"))),
    ("POST /api/v1/load_weights", "path", None): of_the_future(post("load_weights", model_id=own("model"),
                                                                    path=of("state"))),
    ("POST /api/v1/create_custom_loss", "session", 404): post(
        "create_custom_loss", session_id=of("session"), custom_loss_seq_id=0, inputs=[{"name": "logprobs", "rank": 1}], graph={}),
    ("POST /api/v1/create_sampling_session", "session", 404): post(
        "create_sampling_session", session_id=of("session"), sampling_session_seq_id=0, base_model=MODEL),
    ("POST /api/v1/create_sampling_session", "path", 404): post(
        "create_sampling_session", session_id=own("session"), sampling_session_seq_id=77, model_path=of("weights")),
    ("GET /api/v1/samplers/{sampler_id}", "sampler", 404): at("GET", "samplers/{sampler}"),
    ("POST /api/v1/join_sampling_session", "sampler", 404): post("join_sampling_session",
                                                                 sampling_session_id=of("sampler")),
    ("POST /api/v1/asample", "sampler", 404): post("asample", sampling_session_id=of("sampler"), seq_id=1, num_samples=1,
                                                   prompt=PROMPT, sampling_params={"max_tokens": 1}),
    ("POST /api/v1/retrieve_future", "future", 404): post("retrieve_future", request_id=of("future")),
    ("POST /api/v1/retrieve_futures", "sampler", 404): lambda client, it, own: client.post("retrieve_futures", {
        "target": {"type": "sampling_session", "sampling_session_id": it["sampler"], "cloned_sampler_id": 0},
        "prev_cursor": 0, "timeout": 0.0, "retrieved_request_ids": []}),
    ("POST /api/v1/cancel_future", "future", 404): post("cancel_future", request_id=of("future")),
    ("GET /api/v1/observe/traces/{trace_id}", "trace", 404): at("GET", "observe/traces/{trace}"),
    ("GET /api/v1/observe/traces/{trace_id}/perfetto", "trace", 404): at("GET", "observe/traces/{trace}/perfetto"),
    ("GET /api/v1/observe/runs/{run_id}", "run", 404): at("GET", "observe/runs/{run}"),
    ("GET /api/v1/observe/runs/{run_id}/steps", "run", 404): at("GET", "observe/runs/{run}/steps"),
    ("GET /console/{path}", "never looked up", 200): lambda client, it, own: client.request(
        "GET", "/console/runs/" + it["model"]),
    ("POST /oai/api/v1/completions", "path", 404): openai("POST", "completions", "weights"),
    ("POST /oai/api/v1/completions", "sampler", 404): openai("POST", "completions", "sampler"),
    ("POST /oai/api/v1/chat/completions", "path", 404): openai("POST", "chat/completions", "weights"),
    ("POST /oai/api/v1/chat/completions", "sampler", 404): openai("POST", "chat/completions", "sampler"),
    ("GET /oai/api/v1/models/{model}", "path", 404): openai("GET", "models/{weights}"),
    ("GET /oai/api/v1/models/{model}", "sampler", 404): openai("GET", "models/{sampler}"),
}


def answer_to(client, ask, things, own):
    answer = ask(client, things, own)
    body = answer.body.decode()
    for value in sorted(things.values(), key=len, reverse=True):
        body = body.replace(value, "ID")
    headers = sorted((name.lower(), value) for name, value in answer.headers.items()
                     if name.lower() not in HEADERS_THAT_DIFFER)
    return answer.status, headers, body


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} ({row[1]})")
def test_somebody_elses_id_is_an_unknown_one(row, alices, finished, bobs, raw_bob):
    unknown = answer_to(raw_bob, ROWS[row], never_were(alices), bobs)
    assert answer_to(raw_bob, ROWS[row], alices, bobs) == unknown
    assert answer_to(raw_bob, ROWS[row], finished, bobs) == unknown, "the session has ended"
    if row[2] is not None:
        assert unknown[0] == row[2], unknown
    else:
        assert unknown[0] == 404 or "error" in json.loads(unknown[2]), unknown


def test_what_was_asked_for_is_untouched(alices, raw):
    assert raw.post("session_heartbeat", {"session_id": alices["session"]}).status == 200
    assert raw.post("get_info", {"model_id": alices["model"]}).status == 200
    run = raw.get("training_runs/" + alices["model"]).json
    assert run["last_checkpoint"]["public"] is False and run["last_checkpoint"]["expires_at"] is None
    assert raw.retrieve(alices["future"], protobuf=True).status == 200


def takes_an_id(path, operation):
    if "{" in path:
        return True
    schemas = [content.get("schema", {}) for content in operation.get("requestBody", {}).get("content", {}).values()]
    # A body without a description in the document may contain ids.
    return any(not schema.get("properties") or ID_FIELDS & set(schema["properties"]) for schema in schemas
               if schema != {"type": "object", "properties": {}})


def test_every_route_that_takes_an_id_has_a_row(raw):
    paths = json.loads(raw.request("GET", "/openapi.json").body)["paths"]
    routes = {f"{method.upper()} {path}" for path, operations in paths.items()
              for method, operation in operations.items() if takes_an_id(path, operation)}
    rows = {route for route, _, _ in ROWS}
    assert rows - {f"{method.upper()} {path}" for path, operations in paths.items() for method in operations} == set()
    assert routes - rows == set()
