"""The loss stable_reinforce through the unmodified SDK 0.38: recorded samples, spans, the formula of docs/losses.md."""
import math
import pathlib

import pytest

import sdk_program
from tuft_server import MODEL

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = ROOT / "build/sdk/0.38.0/bin/python"

SDK_PROGRAM = '''
import json, sys, warnings
warnings.simplefilter("ignore")
import tinker
from tinker import types
url, model = sys.argv[1:]
ASKED = list(b"the answer")
PARAMS = types.SamplingParams(max_tokens=6, stop=[], seed=5)

def prompt_of(name, offset, length):
    return types.PromptProvenanceSpan(sequence_id=name, offset=offset, length=length)

def sampled_of(name, offset, length):
    return types.SampledProvenanceSpan(sequence_id=name, offset=offset, length=length)

def draw(sampler, asked, count=1):
    return sampler.sample(types.ModelInput.from_ints(asked), num_samples=count, sampling_params=PARAMS).result().sequences

def datum(tokens, advantages, inputs, targets):
    # The logprobs are not those of the sampler: the record wins.
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]), model_input_spans=inputs, loss_fn_input_spans=targets,
        loss_fn_inputs={"target_tokens": tokens[1:], "logprobs": [-20.0] * (len(tokens) - 1), "advantages": advantages})

def one_turn(drawn, advantage=1.5, prompt_advantage=0.0, shift=0):
    name, size, count = drawn.sequence_id, len(ASKED), len(drawn.tokens)
    first = drawn.tokens[0] if shift == 0 else (drawn.tokens[0] + shift) % 100
    return datum([*ASKED, first, *drawn.tokens[1:]], [prompt_advantage] * (size - 1) + [advantage] * count,
                 [prompt_of(name, 0, size), sampled_of(name, 0, count - 1)],
                 [prompt_of(name, 1, size - 1), sampled_of(name, 0, count)])

def two_turns(first, second, between):
    size, count, more = len(ASKED), len(first.tokens), len(second.tokens)
    tokens = [*ASKED, *first.tokens, *between, *second.tokens]
    one, two = first.sequence_id, second.sequence_id
    rest = len(between)
    return datum(tokens, [0.0] * (size - 1) + [0.5] * count + [0.0] * rest + [-1.0] * more,
                 [prompt_of(one, 0, size), sampled_of(one, 0, count), prompt_of(two, size + count, rest), sampled_of(two, 0, more - 1)],
                 [prompt_of(one, 1, size - 1), sampled_of(one, 0, count), prompt_of(two, size + count, rest), sampled_of(two, 0, more)])

def refusal(run, one):
    try:
        run.forward_backward([one], "stable_reinforce").result()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "it was trained"

out = {"passes": [], "refusals": {}}
service = tinker.ServiceClient(base_url=url, api_key="tml-alice")
run = service.create_lora_training_client(base_model=model, rank=4, seed=3)
sampler = run.save_weights_and_get_sampling_client(record_stability_info=True)
one, two = draw(sampler, ASKED, 2)
between = list(b" and")
later, = draw(sampler, [*ASKED, *one.tokens, *between])
out["sampled"] = [list(one.logprobs), list(two.logprobs), list(one.logprobs) + list(later.logprobs)]
data = [one_turn(one), one_turn(two, -0.5), two_turns(one, later, between)]
for _ in range(3):
    passed = run.forward_backward(data, "stable_reinforce", loss_fn_config={"kl_coeff": 0.1})
    stepped = run.optim_step(types.AdamParams(learning_rate=0.02))
    result = passed.result()
    stepped.result()
    out["passes"].append({"loss": result.metrics["loss:sum"],
                          "logprobs": [list(each["logprobs"].data) for each in result.loss_fn_outputs]})
refusals = out["refusals"]
unrecorded, = draw(run.save_weights_and_get_sampling_client(), ASKED)
refusals["unrecorded"] = refusal(run, one_turn(unrecorded))
refusals["unrecorded id"] = unrecorded.sequence_id
other = tinker.ServiceClient(base_url=url, api_key="tml-alice").create_lora_training_client(base_model=model, rank=4)
refusals["other session"] = refusal(other, one_turn(one))
bob = tinker.ServiceClient(base_url=url, api_key="tml-bob").create_lora_training_client(base_model=model, rank=4)
refusals["other user"] = refusal(bob, one_turn(one))
bare = one_turn(one)
bare = types.Datum(model_input=bare.model_input, loss_fn_inputs=bare.loss_fn_inputs)
refusals["no spans"] = refusal(run, bare)
refusals["advantage on the prompt"] = refusal(run, one_turn(one, prompt_advantage=0.5))
refusals["another token"] = refusal(run, one_turn(one, shift=1))
refusals["afterwards"] = refusal(run, one_turn(two))
print(json.dumps(out))
'''


def reference(p, q, advantages, kl_coeff):
    """The formula of docs/losses.md for the sampled tokens of a datum."""
    total = 0.0
    for one, sampled, advantage in zip(p, q, advantages):
        ratio = math.exp(one - sampled)
        total += -min(ratio, 2.0) * advantage * one + kl_coeff * (ratio - 1 - (one - sampled))
    return total


def test_the_loss_trains_on_what_was_recorded(server, tmp_path):
    if not PYTHON.exists():
        pytest.skip("tests/sdk/environments.py 0.38.0 was not run; ./dev test runs it")
    out = sdk_program.output_of(PYTHON, SDK_PROGRAM, tmp_path, server.url, MODEL)
    asked, drawn, between = len("the answer"), 6, len(" and")
    sampled = [range(asked - 1, asked - 1 + drawn)] * 2
    turns = [*sampled[0], *range(asked - 1 + drawn + between, asked - 1 + 2 * drawn + between)]
    places = [*sampled, turns]
    advantages = [[1.5] * drawn, [-0.5] * drawn, [0.5] * drawn + [-1.0] * drawn]
    for number, passed in enumerate(out["passes"]):
        p = [[logprobs[i] for i in place] for logprobs, place in zip(passed["logprobs"], places)]
        expected = sum(reference(*one, 0.1) for one in zip(p, out["sampled"], advantages))
        assert passed["loss"] == pytest.approx(expected, rel=1e-4, abs=1e-4), number
        is_on_policy = p == [pytest.approx(one, abs=1e-4) for one in out["sampled"]]
        assert is_on_policy == (number == 0)
    check_refusals(out["refusals"])


def check_refusals(refusals):
    unrecorded = refusals["unrecorded"]
    assert f"the sequence '{refusals['unrecorded id']}' is not recorded" in unrecorded
    assert "record_stability_info=True" in unrecorded and "RequestFailedError" in unrecorded
    for which in ("other session", "other user"):
        assert "is not recorded" in refusals[which], which
    assert "needs the spans of every datum" in refusals["no spans"]
    assert "do not call sampled" in refusals["advantage on the prompt"]
    assert "another token than the sequence" in refusals["another token"]
    assert refusals["afterwards"] == "it was trained"
