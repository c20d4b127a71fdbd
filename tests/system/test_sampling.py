"""Tests sampling through the unmodified SDK."""
import math

import numpy as np
import pytest
import tinker
from tinker import types

from conftest import service_client
from examples_of_data import datum, logprobs_of, prompt, tokens_of
from tuft_server import MODEL

TEXT = "one two three"


@pytest.fixture(scope="module")
def sampler(server):
    return service_client(server).create_sampling_client(base_model=MODEL)


def sample(sampler, text=TEXT, n=1, prompt_logprobs=False, topk=0, **params):
    settings = types.SamplingParams(**{"max_tokens": 8, "temperature": 1.0, **params})
    return sampler.sample(prompt(text), num_samples=n, sampling_params=settings, include_prompt_logprobs=prompt_logprobs,
                          topk_prompt_logprobs=topk).result()


def test_every_token_has_its_logprob_and_length_stops_at_max_tokens(sampler):
    answer = sample(sampler, n=3, max_tokens=8, seed=1)
    assert len(answer.sequences) == 3
    for sequence in answer.sequences:
        assert len(sequence.tokens) == len(sequence.logprobs)
        assert len(sequence.tokens) == 8 or sequence.stop_reason == "stop"
        assert all(value <= 0 for value in sequence.logprobs)
    assert len({tuple(sequence.tokens) for sequence in answer.sequences}) > 1


def test_a_seed_makes_it_repeatable_and_another_seed_another(sampler):
    first, second, other = (sample(sampler, n=2, seed=seed, max_tokens=12) for seed in (5, 5, 6))
    tokens = [[list(sequence.tokens) for sequence in answer.sequences] for answer in (first, second, other)]
    assert tokens[0] == tokens[1]
    assert tokens[0] != tokens[2]
    assert tokens[0][0] != tokens[0][1], "the sequences of one request are equal"


def test_a_seed_is_repeatable_whoever_shares_the_step(sampler):
    alone = sample(sampler, seed=9, max_tokens=12).sequences[0].tokens
    settings = types.SamplingParams(max_tokens=12, temperature=1.0, seed=9)
    crowd = [sampler.sample(prompt(TEXT), num_samples=1, sampling_params=settings)]
    crowd += [sampler.sample(prompt("other text " * (i + 1)), num_samples=2,
                             sampling_params=types.SamplingParams(max_tokens=16, temperature=1.0)) for i in range(6)]
    assert list(crowd[0].result().sequences[0].tokens) == list(alone)
    for future in crowd[1:]:
        assert len(future.result().sequences) == 2


def test_greedy_takes_the_most_probable_token(sampler):
    greedy = sample(sampler, temperature=0.0).sequences[0]
    assert list(sample(sampler, temperature=0.0, seed=3).sequences[0].tokens) == list(greedy.tokens)
    assert list(sample(sampler, temperature=1.0, top_k=1).sequences[0].tokens) == list(greedy.tokens)
    assert list(sample(sampler, temperature=1.0, top_p=1e-6).sequences[0].tokens) == list(greedy.tokens)
    whole = tokens_of(TEXT) + list(greedy.tokens)
    top = sampler.sample(types.ModelInput.from_ints(whole), num_samples=1, include_prompt_logprobs=True,
                         topk_prompt_logprobs=1,
                         sampling_params=types.SamplingParams(max_tokens=1)).result().topk_prompt_logprobs
    assert [row[0][0] for row in top[len(tokens_of(TEXT)):]] == list(greedy.tokens)


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_the_logprob_of_a_sampled_token_is_the_one_that_forward_gives_it(server, alice, temperature):
    """Invariant 6: sampler and trainer share weights and kernels. The temperature decides what is drawn, not its number."""
    client = alice.create_lora_training_client(base_model=MODEL, rank=8, seed=3)
    for _ in range(3):
        client.forward_backward([datum("some training first")], "cross_entropy")
        client.optim_step(types.AdamParams(learning_rate=5e-3)).result()
    sampler = client.save_weights_and_get_sampling_client()
    sequence = sample(sampler, max_tokens=16, seed=2, temperature=temperature).sequences[0]
    tokens = tokens_of(TEXT) + list(sequence.tokens)
    one = types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]),
                      loss_fn_inputs={"target_tokens": tokens[1:], "weights": [1.0] * (len(tokens) - 1)})
    forward = logprobs_of(client.forward([one], "cross_entropy").result())[0]
    np.testing.assert_allclose(forward[-len(sequence.tokens):], sequence.logprobs, atol=1e-5)


def test_compute_logprobs_has_one_entry_a_token_and_none_first(sampler):
    values = sampler.compute_logprobs(prompt(TEXT)).result()
    assert len(values) == len(tokens_of(TEXT))
    assert values[0] is None
    assert all(math.isfinite(value) and value < 0 for value in values[1:])


def test_prompt_logprobs_and_topk_agree(sampler):
    answer = sample(sampler, prompt_logprobs=True, topk=128, max_tokens=1)
    tokens, top = tokens_of(TEXT), answer.topk_prompt_logprobs
    assert len(top) == len(tokens) and top[0] is None
    for position in range(1, len(tokens)):
        row = top[position]
        assert [value for _, value in row] == sorted((value for _, value in row), reverse=True)
        assert len(row) == len(dict(row)) == 128
        assert 0.3 < sum(math.exp(value) for _, value in row) <= 1.001
        own = dict(row).get(tokens[position], answer.prompt_logprobs[position])
        assert own == pytest.approx(answer.prompt_logprobs[position], abs=1e-5)
        assert own <= row[0][1]
    few = sample(sampler, prompt_logprobs=True, topk=3, max_tokens=1).topk_prompt_logprobs
    assert [len(row) for row in few[1:]] == [3] * (len(tokens) - 1)
    assert [token for token, _ in few[1]] == [token for token, _ in top[1][:3]]


def test_a_stop_token_ends_the_sequence_and_is_part_of_it(sampler):
    greedy = list(sample(sampler, temperature=0.0, max_tokens=12).sequences[0].tokens)
    stop = greedy[3]
    stopped = sample(sampler, temperature=0.0, max_tokens=12, stop=[stop]).sequences[0]
    assert list(stopped.tokens) == greedy[:greedy.index(stop) + 1]
    assert stopped.stop_reason == "stop"
    assert len(stopped.logprobs) == len(stopped.tokens)


def test_a_stop_string_ends_the_sequence(server, alice):
    client = alice.create_lora_training_client(base_model=MODEL, rank=16, seed=1)
    text = "count: alpha beta gamma"
    for _ in range(60):
        client.forward_backward([datum(text)], "cross_entropy")
        stepped = client.optim_step(types.AdamParams(learning_rate=5e-3))
    stepped.result()
    sampler = client.save_weights_and_get_sampling_client()
    start = "count: "
    whole = sample(sampler, start, temperature=0.0, max_tokens=16).sequences[0]
    assert bytes(whole.tokens).decode() == text[len(start):]
    assert whole.stop_reason == "length"
    for stop in ("beta", ["nothing", "beta"]):
        stopped = sample(sampler, start, temperature=0.0, max_tokens=16, stop=stop).sequences[0]
        assert bytes(stopped.tokens).decode() == "alpha beta"
        assert stopped.stop_reason == "stop"


def test_a_hundred_samples_at_once(sampler):
    settings = types.SamplingParams(max_tokens=4, temperature=1.0)
    futures = [sampler.sample(prompt(f"request {i}"), num_samples=1, sampling_params=settings) for i in range(100)]
    assert all(len(future.result().sequences) == 1 for future in futures)


def test_a_prompt_over_the_context_is_refused_and_one_at_it_is_served(sampler):
    settings = types.SamplingParams(max_tokens=8)
    with pytest.raises((tinker.BadRequestError, tinker.RequestFailedError, ValueError)):
        sampler.sample(types.ModelInput.from_ints([1] * 300), num_samples=1, sampling_params=settings).result()
    at_limit = sampler.sample(types.ModelInput.from_ints([1] * 248), num_samples=1, sampling_params=settings).result()
    assert len(at_limit.sequences[0].tokens) <= 8


def test_without_max_tokens_it_generates_up_to_the_context(sampler):
    answer = sampler.sample(types.ModelInput.from_ints([1] * 240), num_samples=1,
                            sampling_params=types.SamplingParams(temperature=1.0, seed=1)).result()
    sequence = answer.sequences[0]
    assert 1 <= len(sequence.tokens) <= 16
    assert sequence.stop_reason == ("length" if len(sequence.tokens) == 16 else "stop")


def test_the_sampler_names_its_base_model(sampler):
    assert sampler.get_base_model() == MODEL
