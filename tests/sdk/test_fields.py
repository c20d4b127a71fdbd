"""Proves that the server reads, or refuses by name, every field that a version of the SDK can send.

Each field of each request class of the SDK gets a value of a type that no field has. A server that reads the field, and one
that does not know it, names it in its refusal. A server that ignores it does not. The same objects then get a field that no SDK
has, as a newer SDK may.
"""
import copy
import itertools
import json
import os
import subprocess

import pytest

import environments
import matrix
from raw_client import RawClient
from tuft_server import ALICE, MODEL

NUMBERS = itertools.count()
WRONG = [{"of_a_type": ["that", "no", "field", "has"]}]

DATUM = {"model_input": {"chunks": [{"type": "encoded_text", "tokens": [1, 2]}]},
         "loss_fn_inputs": {"target_tokens": {"data": [2, 3], "dtype": "int64", "shape": [2]}}}


def objects(client):
    """Makes a session, a run, a sampling session and a checkpoint, and returns their ids."""
    session = client.session()
    model = client.model(MODEL, session)
    sampler = client.sampler(session, base_model=MODEL).json["sampling_session_id"]
    saved = client.result(client.post("save_weights", {"model_id": model, "path": "kept"})).json["path"]
    return session, model, sampler, saved


def bodies(session, model, sampler, saved):
    """Returns, by request class, the endpoint and a body that it accepts."""
    run, new = {"model_id": model}, {"session_id": session, "model_seq_id": 70}
    passed = {"data": [DATUM], "loss_fn": "cross_entropy"}
    prompt = {"chunks": [{"type": "encoded_text", "tokens": [1, 2, 3]}]}
    return {
        "ClientConfigRequest": ("client/config", {}),
        "CopyWeightsRequest": ("copy_weights", {"source_path": saved}),
        "CreateModelRequest": ("create_model", {**new, "base_model": MODEL, "lora_config": {"rank": 4},
                                                "optimizer_config": {"type": "adamw"}}),
        "CreateSamplingSessionRequest": ("create_sampling_session", {
            "session_id": session, "sampling_session_seq_id": 70, "base_model": MODEL}),
        "CreateSessionRequest": ("create_session", {"tags": []}),
        "ForwardBackwardRequest": ("forward_backward", {**run, "forward_backward_input": passed}),
        "ForwardRequest": ("forward", {**run, "forward_input": passed}),
        "FutureRetrieveRequest": ("retrieve_future", {"request_id": "none"}),
        "GetInfoRequest": ("get_info", run),
        "JoinSamplingSessionRequest": ("join_sampling_session", {"sampling_session_id": sampler}),
        "LoadWeightsRequest": ("load_weights", {**new, "path": saved, "optimizer": False,
                                                "optimizer_config": {"type": "adamw"}}),
        "OptimStepRequest": ("optim_step", {**run, "adam_params": {"learning_rate": 1e-4}}),
        "SampleRequest": ("asample", {
            "sampling_session_id": sampler, "prompt": prompt, "sampling_params": {"max_tokens": 1},
            "target_prompt_logprobs": {"data": [1, 2], "dtype": "int64", "shape": [2, 1]}}),
        "SaveWeightsExternalRequest": ("save_weights_external", {**run, "path": "outside"}),
        "SaveWeightsForSamplerRequest": ("save_weights_for_sampler", {**run, "sampling_session_seq_id": 71}),
        "SaveWeightsRequest": ("save_weights", {**run, "path": "kept"}),
        "SessionHeartbeatRequest": ("session_heartbeat", {"session_id": session}),
        "SessionSearchRequest": ("sessions/search", {"owner": {"type": "own"}, "user_metadata": {},
                                                     "statuses": [{"type": "active"}]}),
        "UnloadModelRequest": ("unload_model", run),
        "FuturesRetrieveRequest": ("retrieve_futures", {
            "target": {"type": "sampling_session", "sampling_session_id": sampler, "cloned_sampler_id": 0},
            "prev_cursor": 0, "timeout": 0.0, "retrieved_request_ids": []}),
        "CreateCustomLossRequest": ("create_custom_loss", {
            "session_id": session, "custom_loss_seq_id": next(NUMBERS), "name": "sum",
            "inputs": [{"name": "logprobs", "rank": 1}], "graph": {"format": 1, "nodes": [
                {"op": "placeholder", "name": "logprobs", "target": "logprobs", "args": [], "kwargs": {}},
                {"op": "call_method", "name": "sum_1", "target": "sum", "args": [{"ref": "logprobs"}], "kwargs": {}},
                {"op": "output", "name": "output", "target": "output", "args": [{"tuple": [{"ref": "sum_1"}, {"dict": {}}]}],
                 "kwargs": {}}]}}),
    }


# Classes that are not bodies of a request, with the reason.
NO_BODY = {
    "GetBillingUsageRequest": "a query; tests/system/test_usage.py",
    "GetCurrentCheckpointStorageUsageRequest": "a query; tests/system/test_usage.py",
    "TelemetrySendRequest": "the SDK's events about itself: the server counts them and keeps none",
    "protobuf ForwardBackwardRequest": "not JSON; test_protobuf_fields below",
}

# Fields that change nothing, with the reason. "*": of every class.
NOT_READ = {
    ("*", "type"): "repeats the endpoint",
    ("ClientConfigRequest", "sdk_version"): "every version gets the same configuration",
    ("FutureRetrieveRequest", "allow_metadata_only"): "the server always may answer with the result",
}

# ./dev test has the environments of these two; ./dev e2e sdk asks for every version.
VERSIONS = environments.named(os.environ.get("TUFT_SDK_VERSIONS", "oldest newest").split())

# Classes in which the server ignores a field that it does not know, with the reason. docs/compatibility.md has them, too.
IGNORES_UNKNOWN = {
    "ClientConfigRequest": "every client gets the same configuration",
    "CreateSessionRequest": "describes the client, and changes no result",
    "FutureRetrieveRequest": "the server always may answer with the result",
    "GetInfoRequest": "the answer says what the run is, whatever is asked besides",
    "SessionHeartbeatRequest": "says only that the client lives",
}

# What the SDK calls otherwise than the body that it sends.
ON_THE_WIRE = {"optim_params": "adam_params"}


def put(body, path, value):
    """Sets a field of a copy of `body`; of a list, in its first element."""
    changed = copy.deepcopy(body)
    *outer, last = path.split(".")
    place = changed
    for name in outer:
        place = place.setdefault(name, {})
        place = place[0] if isinstance(place, list) else place
    place[last] = value
    return changed


def refusal(client, answer):
    """Returns the text of a refusal, at once or by the future; None if the request was accepted."""
    if answer.status == 200 and "request_id" in answer.json:
        answer = client.result(answer)
        return answer.json.get("error")
    return None if answer.status < 300 else answer.detail


def fields_of(version):
    run = subprocess.run([environments.program(version), environments.FOLDER / "request_fields.py"], capture_output=True,
                         text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with matrix.start(tmp_path_factory.mktemp("fields")) as running:
        yield running


@pytest.mark.parametrize("version", VERSIONS)
def test_no_field_is_ignored(server, version):
    if not environments.program(version).exists():
        pytest.skip(f"tests/sdk/environments.py {version} was not run; ./dev test runs it")
    client = RawClient(server.url, ALICE)
    made, ignored, checked = objects(client), [], 0
    for name, paths in fields_of(version).items():
        if name in NO_BODY:
            continue
        for path in paths:
            known = bodies(*made)  # anew, because a repeated number of a request means the same request
            assert name in known, f"{name} of tinker {version} has no body in this test"
            endpoint, body = known[name]
            path = ".".join(ON_THE_WIRE.get(part, part) for part in path.split("."))
            last = path.split(".")[-1]
            if ("*", last) in NOT_READ or (name, path) in NOT_READ:
                continue
            said = refusal(client, client.post(endpoint, put(body, path, WRONG)))
            checked += 1
            if said is None or (last not in said and "graph" not in path):  # its errors name a node
                ignored.append(f"{name}.{path}: {said}")
    assert not ignored, "\n".join(ignored)
    assert checked > 60


def objects_of(paths):
    """Returns the paths of the objects in a body: "" and all that lie around a field."""
    return sorted({""} | {path.rpartition(".")[0] + "." for path in paths if "." in path})


@pytest.mark.parametrize("version", VERSIONS)
def test_a_field_of_a_newer_sdk_is_refused_by_name(server, version):
    if not environments.program(version).exists():
        pytest.skip(f"tests/sdk/environments.py {version} was not run; ./dev test runs it")
    client = RawClient(server.url, ALICE)
    made, ignored, refused, checked = objects(client), [], [], 0
    for name, paths in fields_of(version).items():
        if name in NO_BODY:
            continue
        for outer in objects_of(paths):
            endpoint, body = bodies(*made)[name]
            outer = ".".join(ON_THE_WIRE.get(part, part) for part in outer.split("."))
            if outer and not reaches(body, outer):
                continue  # a member of a union that this body does not have
            said = refusal(client, client.post(endpoint, put(body, outer + "of_a_newer_sdk", 1)))
            checked += 1
            if name in IGNORES_UNKNOWN:
                refused += [f"{name}: {said}"] if "of_a_newer_sdk" in (said or "") else []
            elif said is None or "of_a_newer_sdk" not in said:
                ignored.append(f"{name}.{outer}: {said}")
    assert not ignored, "\n".join(ignored)
    assert not refused, "\n".join(refused)
    assert checked > 20


def reaches(body, outer):
    place = body
    for part in outer.rstrip(".").split("."):
        place = place[0] if isinstance(place, list) and place else place
        if not isinstance(place, dict) or part not in place:
            return False
        place = place[part]
    return isinstance(place[0] if isinstance(place, list) and place else place, dict)


# The messages of a forward_backward, with a field that no SDK has. libprotobuf would ignore it.
@pytest.mark.parametrize("message", ["ForwardBackwardRequest", "Datum", "Chunk", "EncodedTextChunk", "Tensor",
                                     "Datum.loss_fn_inputs", "ForwardBackwardRequest.loss_fn_config"])
def test_an_unknown_protobuf_field_is_refused_by_number(server, message):
    client = RawClient(server.url, ALICE)
    model = client.model(MODEL)
    answer = client.post_protobuf("forward_backward", pass_with_unknown_field(model, message))
    assert answer.status == 400 and f"field 15 of a {message}: " in answer.detail, answer
    # Its number is used up, so that the run goes on.
    assert client.result(client.train(model, 2), protobuf=True).status == 200


def pass_with_unknown_field(model, message):
    """Returns the bytes of a pass with one datum, in which `message` has a field 15."""
    unknown = b"\x78\x01"

    def field(number, *parts):
        content = b"".join(parts)
        assert len(content) < 128
        return bytes([number << 3 | 2, len(content)]) + content

    def extra(name):
        return unknown if name == message else b""
    tokens = field(1, field(1, bytes([1, 0, 0, 0])), extra("EncodedTextChunk"))
    chunk = field(1, tokens, extra("Chunk"))
    target = field(2, field(1, (2).to_bytes(8, "little")), b"\x18\x02", extra("Tensor"))
    inputs = field(2, field(1, b"target_tokens"), target, extra("Datum.loss_fn_inputs"))
    config = field(5, field(1, b"temperature"), b"\x11" + bytes(6) + b"\xf0\x3f",
                   extra("ForwardBackwardRequest.loss_fn_config"))
    return b"".join([field(1, model.encode()), b"\x10\x01", field(3, chunk, inputs, extra("Datum")),
                     field(4, b"cross_entropy"), config, extra("ForwardBackwardRequest")])


@pytest.mark.parametrize("version", VERSIONS)
def test_protobuf_fields_are_those_of_our_schema(version):
    if not environments.program(version).exists():
        pytest.skip(f"tests/sdk/environments.py {version} was not run; ./dev test runs it")
    schema = (environments.ROOT / "proto/tinker/public.proto").read_text()
    for path in fields_of(version)["protobuf ForwardBackwardRequest"]:
        if ".image." in path:
            continue  # an image is refused as a whole
        name, number = path.split(".")[-1].split("=")
        if name in ("key", "value") and ("map<" in schema):
            continue
        assert f" {name} = {number};" in schema, path
