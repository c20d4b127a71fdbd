"""Custom losses that the server computes: over plain HTTP, and through the SDK 0.38 where an interpreter has it."""
import os
import pathlib
import struct
import subprocess

import numpy as np
import pytest

import sdk_program
from tuft_server import MODEL

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKENS = list(b"the answer is tuft")
NEEDS_TORCH = "needs an interpreter with tinker 0.38 and torch: build/sdk/0.38.0 or TUFT_SDK_TORCH_PYTHON"


def ref(name):
    return {"ref": name}


def call(name, target, *args):
    method = target.startswith(".")
    return {"op": "call_method" if method else "call_function", "name": name, "target": target.lstrip("."), "args": list(args),
            "kwargs": {}}


def graph_of(inputs, *calls, loss, metrics=None):
    placeholders = [{"op": "placeholder", "name": name, "target": name, "args": [], "kwargs": {}} for name in inputs]
    output = {"op": "output", "name": "output", "target": "output", "kwargs": {},
              "args": [{"tuple": [ref(loss), {"dict": metrics or {}}]}]}
    return {"format": 1, "nodes": [*placeholders, *calls, output]}


# -(weights * logprobs).sum(), which is cross_entropy.
CROSS_ENTROPY = graph_of(["logprobs", "weights"], call("mul", "operator.mul", ref("weights"), ref("logprobs")),
                         call("sum_1", ".sum", ref("mul")), call("neg", "operator.neg", ref("sum_1")),
                         call("w", ".sum", ref("weights")), loss="neg", metrics={"custom/w:sum": ref("w"), "custom/w:mean": ref("w")})
INPUTS = [{"name": "logprobs", "rank": 1}, {"name": "weights", "rank": 1}]


def create(raw, session, number, graph, inputs=INPUTS):
    return raw.result(raw.post("create_custom_loss", {
        "session_id": session, "custom_loss_seq_id": number, "name": "loss", "inputs": inputs, "graph": graph,
        "type": "create_custom_loss"})).json


def train(raw, run, seq, loss_fn, config=None, weights=(1.0, 0.5)):
    data = [{"model_input": {"chunks": [{"type": "encoded_text", "tokens": TOKENS[:-1]}]},
             "loss_fn_inputs": {"target_tokens": {"data": TOKENS[1:], "dtype": "int64"},
                                "weights": {"data": [weight] * (len(TOKENS) - 1), "dtype": "float32"}}}
            for weight in weights]
    return raw.result(raw.post("forward_backward", {"model_id": run, "seq_id": seq, "forward_backward_input": {
        "data": data, "loss_fn": loss_fn, **({"loss_fn_config": config} if config else {})}})).json


def step(raw, run, seq):
    return raw.result(raw.post("optim_step", {"model_id": run, "seq_id": seq, "type": "optim_step",
                                              "adam_params": {"learning_rate": 0.01}})).json


def test_a_custom_loss_trains_as_the_loss_that_it_says(raw):
    session = raw.session()
    created = create(raw, session, 0, CROSS_ENTROPY)
    assert created == {"type": "create_custom_loss", "loss_id": f"{session}:loss:0"}
    runs = [raw.model(MODEL, session=session, seed=5) for _ in range(2)]
    losses = {run: [] for run in runs}
    for turn in range(3):
        for run, ours in zip(runs, (True, False)):
            passed = train(raw, run, 2 * turn + 1, "custom" if ours else "cross_entropy",
                           {"loss_id": created["loss_id"]} if ours else None)
            assert "error" not in passed, passed
            losses[run].append(passed["metrics"]["loss:sum"])
            if ours:
                assert passed["metrics"]["custom/w:sum"] == pytest.approx(1.5 * (len(TOKENS) - 1))
                assert passed["metrics"]["custom/w:mean"] == pytest.approx(0.75 * (len(TOKENS) - 1))
                assert len(passed["loss_fn_outputs"]) == 2
            assert step(raw, run, 2 * turn + 2)["metrics"]["grad_norm"] > 0
    assert losses[runs[0]] == pytest.approx(losses[runs[1]], rel=1e-5)
    assert losses[runs[0]][2] < losses[runs[0]][0]


def test_refusals_name_what_is_wrong(raw, raw_bob):
    session = raw.session()
    product = graph_of(["logprobs", "weights"], call("p", "torch.prod", ref("logprobs")), loss="p")
    refused = create(raw, session, 0, product)
    assert refused["category"] == "user"
    assert refused["error"] == ("node 'p' (torch.prod): this operation is not allowed in a custom loss: use exp of the sum of log")
    run = raw.model(MODEL, session=session)
    unknown = train(raw, run, 1, "custom", {"loss_id": f"{session}:loss:0"})
    assert unknown["category"] == "user" and "no custom loss with this loss_id" in unknown["error"]
    answer = raw_bob.post("create_custom_loss", {"session_id": session, "custom_loss_seq_id": 1, "inputs": INPUTS,
                                                 "graph": CROSS_ENTROPY})
    assert answer.status == 404


def test_a_loss_that_is_not_finite_fails_and_leaves_no_gradient(raw):
    session = raw.session()
    log = graph_of(["logprobs", "weights"], call("log", "torch.log", ref("weights")),
                   call("mul", "operator.mul", ref("log"), ref("logprobs")), call("sum_1", ".sum", ref("mul")), loss="sum_1")
    loss = create(raw, session, 0, log)["loss_id"]
    run = raw.model(MODEL, session=session)
    failed = train(raw, run, 1, "custom", {"loss_id": loss}, weights=(2.0, 0.0))
    assert failed["category"] == "user" and "infinite or NaN" in failed["error"]
    # No gradient: no step is counted, and none is reported.
    assert step(raw, run, 2)["metrics"].get("grad_norm", 0) == 0
    assert "error" not in train(raw, run, 3, "custom", {"loss_id": loss}, weights=(2.0, 3.0))


SDK_PROGRAM = '''
import json, sys, warnings
warnings.simplefilter("ignore")
import tinker, torch
from tinker import types
url, model = sys.argv[1:]
tokens = list(b"the answer is tuft")
n = len(tokens) - 1
def datum(**inputs):
    return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs={
        name: value if isinstance(value, list) else types.TensorData.from_torch(value) for name, value in inputs.items()})
def policy_data():
    return [datum(target_tokens=tokens[1:], sampled=torch.full((n,), -3.0 - i), advantages=torch.linspace(-1, 1, n),
                  tau=torch.tensor(0.1)) for i in range(3)]
def ppo(logprobs, sampled, advantages, tau):
    ratio = torch.exp((logprobs - sampled).clamp(-2, 2))
    loss = -torch.minimum(ratio * advantages, torch.clamp(ratio, 0.8, 1.2) * advantages).sum()
    kl = (sampled - logprobs).pow(2).mean()
    return loss + tau * kl, {"custom/kl:mean": kl, "custom/top:sum": ratio[..., -1].max()}
# A preference of the whole sequence, as in DPO.
def preference_data():
    return [datum(target_tokens=tokens[1:], reference=torch.full((n,), -5.0), mask=(torch.arange(n) >= 6).float(),
                  sign=torch.tensor(sign)) for sign in (1.0, -1.0)]
def preference(logprobs, reference, mask, sign):
    margin = 0.1 * ((logprobs - reference) * mask).sum() * sign
    return -torch.nn.functional.logsigmoid(margin), {"custom/margin:mean": margin, "custom/won:sum": (margin > 0).float()}
# Several targets of each token, as in distillation.
def teacher_data():
    targets = torch.stack([torch.tensor(tokens[1:]), torch.tensor([(token + 1) % 128 for token in tokens[1:]])], dim=1)
    return [datum(target_tokens=targets, teacher=torch.log_softmax(torch.linspace(-1, 1, 2 * n).reshape(n, 2), dim=-1))]
def teacher_kl(logprobs, teacher):
    kl = (torch.exp(teacher) * (teacher - logprobs)).sum(dim=-1)
    weights = torch.softmax(kl.detach(), dim=0)
    return (weights * kl).sum() + 0.01 * torch.logsumexp(kl, dim=0), {"custom/kl:mean": kl.mean()}
LOSSES = [(ppo, {"logprobs": 1, "sampled": 1, "advantages": 1, "tau": 0}, policy_data),
          (preference, {"logprobs": 1, "reference": 1, "mask": 1, "sign": 0}, preference_data),
          (teacher_kl, {"logprobs": 2, "teacher": 2}, teacher_data)]

# The same on the client, as a function of all datums.
def whole(function, names):
    def on_client(data, logprobs):
        total, metrics = 0, {}
        for one, each in zip(data, logprobs):
            loss, more = function(each, *[one.loss_fn_inputs[name].to_torch() for name in names])
            total = total + loss
            for name, value in more.items():
                metrics[name] = metrics.get(name, 0.0) + value.item() / (len(data) if name.endswith(":mean") else 1)
        return total, {name.replace("custom/", "").replace(":", "_"): value for name, value in metrics.items()}
    return on_client

out = {"losses": {}}
with tinker.ServiceClient(base_url=url, api_key="tml-alice") as service:
    for function, ranks, data in LOSSES:
        handle = service.create_custom_loss(function, ranks).result()
        result = out["losses"][function.__name__] = {"loss_id": handle.loss_id}
        for name, loss in (("server", handle), ("client", whole(function, [one for one in ranks if one != "logprobs"]))):
            client = service.create_lora_training_client(base_model=model, rank=4, seed=3)
            metrics = []
            for _ in range(3):
                passed = client.forward_backward_custom(data(), loss)
                stepped = client.optim_step(types.AdamParams(learning_rate=0.01))
                metrics.append({**passed.result().metrics, "grad_norm": stepped.result().metrics["grad_norm"]})
            result[name] = {"metrics": metrics, "path": client.save_state("trained").result().path}
    def bad(logprobs):
        return torch.prod(logprobs), {}
    try:
        service.create_custom_loss(bad, {"logprobs": 1}).result()
    except Exception as error:
        out["refusal"] = f"{type(error).__name__}: {error}"
print(json.dumps(out))
'''


def interpreter():
    """Returns a Python that has tinker 0.38 or newer and torch; None if there is none."""
    for candidate in (os.environ.get("TUFT_SDK_TORCH_PYTHON"), ROOT / "build/sdk/0.38.0/bin/python"):
        if candidate and pathlib.Path(candidate).exists():
            probe = subprocess.run([candidate, "-c", "import torch, tinker.lib.public_interfaces.custom_loss"],
                                   capture_output=True, timeout=120)
            if probe.returncode == 0:
                return candidate
    return None


PAGE_PROGRAM = '''
import json, sys, warnings
warnings.simplefilter("ignore")
import tinker, torch
from tinker import types
url, model, page = sys.argv[1:]
tokens = list(b"the answer is tuft")
n = len(tokens) - 1
inputs = {"sampled": torch.full((n,), -3.0), "advantages": torch.linspace(-1, 1, n), "tau": torch.tensor(0.1)}
data = [types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs={
    "target_tokens": tokens[1:], **{name: types.TensorData.from_torch(value) for name, value in inputs.items()}})]
with tinker.ServiceClient(base_url=url, api_key="tml-alice") as service_client:
    training_client = service_client.create_lora_training_client(base_model=model, rank=4)
    exec(page.replace("training_client.forward", "passed = training_client.forward"), globals())
    print(json.dumps({"loss_id": loss.loss_id, "metrics": passed.metrics}))
'''


def test_the_example_of_the_page(server, tmp_path):
    python = interpreter()
    if python is None:
        pytest.skip(NEEDS_TORCH)
    page = (ROOT / "docs/custom-losses.md").read_text().split("```python\n")[1].split("```")[0]
    out = sdk_program.output_of(python, PAGE_PROGRAM, tmp_path, server.url, MODEL, page)
    assert ":loss:" in out["loss_id"] and {"loss:sum", "custom/kl:mean"} <= out["metrics"].keys()


def weights(server, path):
    """Returns the tensors of a checkpoint, as one list of numbers."""
    run, name = path.removeprefix("tinker://").split("/weights/")
    data = (server.home / "checkpoints" / run.replace(":", "_") / "weights" / name / "adapter_model.safetensors").read_bytes()
    size, = struct.unpack("<Q", data[:8])
    return np.frombuffer(data[8 + size:], np.float32).astype(np.float64)


def test_the_sdk_uploads_losses_and_trains_as_with_functions(server, raw, tmp_path):
    assert raw.post("client/config", {"sdk_version": "0.38.0"}).json["custom_loss_server_side"] is True
    python = interpreter()
    if python is None:
        pytest.skip(NEEDS_TORCH)
    out = sdk_program.output_of(python, SDK_PROGRAM, tmp_path, server.url, MODEL)
    assert set(out["losses"]) == {"ppo", "preference", "teacher_kl"}
    for name, found in out["losses"].items():
        assert ":loss:" in found["loss_id"], name  # the server has computed it
        ours, theirs = found["server"], found["client"]
        for one, other in zip(ours["metrics"], theirs["metrics"]):
            assert one["loss:sum"] == pytest.approx(other["loss:sum"], rel=1e-3, abs=1e-4), name
            assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-3), name
            custom = [key for key in one if key.startswith("custom/")]
            assert custom, name
            for key in custom:
                assert one[key] == pytest.approx(other[key.replace("custom/", "").replace(":", "_")], rel=1e-3, abs=1e-4), key
        assert ours["metrics"][0]["loss:sum"] > ours["metrics"][2]["loss:sum"], name
        mine, reference = weights(server, ours["path"]), weights(server, theirs["path"])
        assert np.abs(mine - reference).max() < 1e-4 < np.abs(mine).max(), name
    assert "node 'prod' (torch.prod)" in out["refusal"] and "exp of the sum of log" in out["refusal"]
