"""Tests runs with the optimizer dimuon: its arithmetic against a float64 reference in numpy, and what is refused."""
import json
import struct

import numpy as np
import pytest

from raw_client import forward_backward
from tuft_server import MODEL

RANK, RATE, BETA = 4, 0.02, 0.75
DIMUON = {"type": "dimuon", "version": 1}


def create(raw, optimizer=DIMUON, session=None):
    answer = raw.result(raw.post("create_model", {
        "session_id": session or raw.session(), "model_seq_id": next(raw.numbers), "base_model": MODEL,
        "lora_config": {"rank": RANK, "seed": 1}, "optimizer_config": optimizer, "type": "create_model"}))
    assert answer.status == 200 and "model_id" in answer.json, answer
    return answer.json["model_id"]


def dimuon(raw, model, seq_id, **params):
    return raw.post("optim_step", {"model_id": model, "seq_id": seq_id, "type": "optim_step", "optimizer_params": {
        "type": "dimuon", "learning_rate": RATE, "grad_clip_norm": 0.0, "beta1": BETA, **params}})


def save(raw, model, seq_id, name):
    answer = raw.result(raw.post("save_weights", {"model_id": model, "path": name, "seq_id": seq_id, "type": "save_weights"}))
    assert answer.status == 200 and "path" in answer.json, answer
    return answer.json["path"]


def load(raw, model, seq_id, path, optimizer):
    return raw.result(raw.post("load_weights", {"model_id": model, "seq_id": seq_id, "path": path, "optimizer": optimizer,
                                                "type": "load_weights"}))


def tensors(file):
    """({name: float64 matrix}, metadata) of a safetensors file."""
    data = file.read_bytes()
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    metadata = header.pop("__metadata__", {})
    body = data[8 + size:]
    return {name: np.frombuffer(body[slice(*one["data_offsets"])], np.float32).reshape(one["shape"]).astype(np.float64)
            for name, one in header.items()}, metadata


def checkpoint(server, model, name):
    return server.home / "checkpoints" / model.replace(":", "_") / "weights" / name


def direction(momentum):
    """The formula of docs/optimizers.md in float64."""
    x = momentum if momentum.shape[0] == RANK else momentum.T
    norm = np.linalg.norm(x)
    if norm == 0:
        return momentum
    x = x / norm
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x - 4.7750 * gram @ x + 2.0315 * gram @ gram @ x
    x *= np.sqrt(min(x.shape)) / np.linalg.norm(x)
    return x if momentum.shape[0] == RANK else x.T


def test_steps_match_the_float64_reference(raw, server):
    model = create(raw)
    save(raw, model, 1, "at-0")
    for step in (1, 2):
        seq = 3 * step - 1
        assert raw.result(raw.train(model, seq), protobuf=True).status == 200
        metrics = raw.result(dimuon(raw, model, seq + 1)).json["metrics"]
        assert metrics["optimizer_step"] == step and metrics["grad_norm"] > 0 and metrics["learning_rate"] == RATE
        save(raw, model, seq + 2, f"at-{step}")
    size = RATE * (RANK / 32) ** -0.175
    moved = 0
    for step in (1, 2):
        before, _ = tensors(checkpoint(server, model, f"at-{step - 1}") / "adapter_model.safetensors")
        after, _ = tensors(checkpoint(server, model, f"at-{step}") / "adapter_model.safetensors")
        momenta, metadata = tensors(checkpoint(server, model, f"at-{step}") / "optimizer.safetensors")
        assert metadata == {"format": "tuft.dimuon.v1", "step": str(step)}
        assert {name.removeprefix("momentum.") for name in momenta} == set(before)
        for name, old in before.items():
            expected = size * direction(momenta["momentum." + name])
            error = np.linalg.norm(after[name] - old + expected)
            assert error <= 2e-3 * np.linalg.norm(expected) + 1e-7, (step, name)
            moved += np.linalg.norm(expected) > 0
    assert moved > len(before), "both A and B have moved"


def test_a_run_keeps_its_optimizer(raw):
    model = create(raw)
    assert raw.post("get_info", {"model_id": model}).json["optimizer_config"] == DIMUON
    adamw = raw.model(MODEL)
    assert raw.post("get_info", {"model_id": adamw}).json["optimizer_config"] == {"type": "adamw"}
    for refused, words in ((raw.optim(model, 1), ("adamw", "dimuon")), (dimuon(raw, adamw, 1), ("dimuon", "adamw"))):
        answer = raw.result(refused).json
        assert answer["category"] == "user"
        assert "parameters of {}, and this model was created with {}".format(*words) in answer["error"]


def test_state_goes_only_into_runs_of_its_optimizer(raw):
    session = raw.session()
    model = create(raw, session=session)
    raw.result(raw.train(model, 1), protobuf=True)
    raw.result(dimuon(raw, model, 2))
    path = save(raw, model, 3, "state")
    adamw = raw.model(MODEL)
    answer = load(raw, adamw, 1, path, optimizer=True).json
    assert answer["category"] == "user" and "optimizer state of dimuon, and this model trains with adamw" in answer["error"]
    assert "path" in load(raw, adamw, 2, path, optimizer=False).json

    def resumed(**more):
        return raw.post("load_weights", {"session_id": session, "model_seq_id": next(raw.numbers) + 100, "path": path,
                                         "type": "load_weights", **more})

    made = raw.result(resumed(optimizer=True)).json["model_id"]
    assert raw.post("get_info", {"model_id": made}).json["optimizer_config"] == DIMUON
    raw.result(raw.train(made, 1), protobuf=True)
    assert raw.result(dimuon(raw, made, 2)).json["metrics"]["optimizer_step"] == 2, "the momentum goes on"
    made = raw.result(resumed(optimizer=False)).json["model_id"]
    assert raw.post("get_info", {"model_id": made}).json["optimizer_config"] == {"type": "adamw"}
    refused = resumed(optimizer=True, optimizer_config={"type": "adamw"})
    assert refused.status == 400 and "optimizer state of dimuon" in refused.detail, refused


@pytest.mark.parametrize("config", [{"type": "sgd"}, {"type": "dimuon", "version": 2}, {"type": "dimuon", "damping": 1e-4}, {}])
def test_other_optimizers_are_refused(raw, config):
    answer = raw.post("create_model", {"session_id": raw.session(), "model_seq_id": 0, "base_model": MODEL,
                                       "lora_config": {"rank": 4}, "optimizer_config": config, "type": "create_model"})
    assert answer.status in (400, 422) and "optimizer_config" in answer.detail, answer


@pytest.mark.parametrize("params", [{"learning_rate": None}, {"learning_rate": -1.0}, {"beta1": 1.0}, {"nesterov": True}])
def test_wrong_parameters_are_refused_by_name(raw, params):
    model = create(raw)
    submitted = dimuon(raw, model, 1, **params)
    text = submitted.detail if submitted.status in (400, 422) else raw.result(submitted).json["error"]
    assert next(iter(params)) in text, text
    assert raw.result(raw.train(model, 2, forward_backward(model, 2)), protobuf=True).status == 200, "the run goes on"
