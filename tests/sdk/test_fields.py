"""Proves that the server reads, or refuses by name, every field that a version of the SDK can send.

Each field of each request class of the SDK gets a value of a type that no field has. A server that reads the field, and one
that does not know it, names it in its refusal. A server that ignores it does not.
"""
import copy
import itertools
import json
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


@pytest.mark.parametrize("version", environments.named(["oldest", "newest"]))
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


@pytest.mark.parametrize("version", environments.named(["oldest", "newest"]))
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
