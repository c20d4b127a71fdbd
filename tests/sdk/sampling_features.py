"""Sampling."""
import asyncio
import os
import pickle

import numpy as np
from tinker import types

from examples_of_data import datum, prompt
from feature import TEXT, feature, method, train


def drawn(client, sampler=None, arguments=None, **params):
    params = types.SamplingParams(**{"max_tokens": 8, "temperature": 1.0, "seed": 3, **params})
    given = {"num_samples": 1, **(arguments or {})}
    return (sampler or client.sampling).sample(prompt(TEXT[:8]), sampling_params=params, **given).result()


@feature("Sampling", "sample")
def _(client):
    one = drawn(client).sequences[0]
    assert len(one.tokens) == len(one.logprobs) <= 8


@feature("Sampling", "several samples, a seed")
def _(client):
    two = drawn(client, arguments={"num_samples": 2}).sequences
    assert [one.tokens for one in two] == [one.tokens for one in drawn(client, arguments={"num_samples": 2}).sequences]


@feature("Sampling", "temperature 0, top_k, top_p")
def _(client):
    greedy = drawn(client, temperature=0.0, seed=1).sequences[0].tokens
    assert greedy == drawn(client, temperature=0.7, top_k=1, seed=2).sequences[0].tokens
    assert greedy == drawn(client, temperature=0.7, top_p=1e-9, seed=5).sequences[0].tokens


@feature("Sampling", "stop strings and stop tokens")
def _(client):
    tokens = drawn(client, temperature=0.0, max_tokens=4).sequences[0].tokens
    stopped = drawn(client, temperature=0.0, max_tokens=4, stop=[tokens[1]]).sequences[0]
    assert str(stopped.stop_reason) == "stop" and len(stopped.tokens) <= 2, stopped


@feature("Sampling", "stop=[] switches every stop off")
def _(client):
    method(client.sampling, "sample", "topk_sample_logprobs")  # 0.28 documents it; its argument came with 0.29
    for seed in range(8):
        answer = drawn(client, arguments={"num_samples": 8}, stop=[], max_tokens=64, seed=seed)
        assert all(len(one.tokens) == 64 for one in answer.sequences)


@feature("Sampling", "compute_logprobs")
def _(client):
    assert len(client.sampling.compute_logprobs(prompt(TEXT)).result()) == len(TEXT)


@feature("Sampling", "prompt log-probabilities, the most likely ones")
def _(client):
    answer = drawn(client, arguments={"include_prompt_logprobs": True, "topk_prompt_logprobs": 3})
    assert len(answer.prompt_logprobs) == 8 and len(answer.topk_prompt_logprobs[1]) == 3


@feature("Sampling", "topk_sample_logprobs")
def _(client):
    method(client.sampling, "sample", "topk_sample_logprobs")
    one = drawn(client, arguments={"topk_sample_logprobs": 2}).sequences[0]
    assert one.topk_logprobs is not None and len(one.topk_logprobs) == len(one.tokens), one


@feature("Sampling", "prompt_logprobs_last_n")
def _(client):
    method(client.sampling, "compute_logprobs", "prompt_logprobs_last_n")
    found = client.sampling.compute_logprobs(prompt(TEXT), prompt_logprobs_last_n=3).result()
    assert [one is not None for one in found] == [False] * (len(TEXT) - 3) + [True] * 3, found


@feature("Sampling", "target_prompt_logprobs")
def _(client):
    method(client.sampling, "sample", "target_prompt_logprobs")
    asked = types.TensorData(data=[65, 66] * 7, dtype="int64", shape=[7, 2])
    found = drawn(client, arguments={"target_prompt_logprobs": asked}).target_prompt_logprobs
    assert np.asarray(found.tolist()).shape == (7, 2) and np.all(np.asarray(found.tolist()) < 0)


@feature("Sampling", "prompt_alt_tokens_k")
def _(client):
    method(client.sampling, "sample", "prompt_alt_tokens_k")
    found = drawn(client, arguments={"prompt_alt_tokens_k": 2}).prompt_alt_tokens
    assert np.asarray(found.tokens.tolist()).shape == (7, 2), found


@feature("Sampling", "record_stability_info")
def _(client):
    method(client.service, "create_sampling_client", "record_stability_info")
    sampler = client.service.create_sampling_client(base_model=client.model, record_stability_info=True)
    assert drawn(client, sampler).sequences[0].sequence_id


@feature("Sampling", "the weights of a run (save_weights_and_get_sampling_client)")
def _(client):
    assert drawn(client, client.training.save_weights_and_get_sampling_client()).sequences


@feature("Sampling", "weights that follow a run (kind=inflight)")
def _(client):
    run = client.new_run()
    method(run, "save_weights_and_get_sampling_client", "kind")
    older = run.save_weights_and_get_sampling_client(kind="inflight")
    before = older.compute_logprobs(prompt(TEXT)).result()
    train(run, 10)
    newer = run.save_weights_and_get_sampling_client(kind="inflight")
    newer.compute_logprobs(prompt(TEXT)).result()  # the save has ended
    after = older.compute_logprobs(prompt(TEXT)).result()
    assert sum(after[1:]) > sum(before[1:]), "the older client stayed on its weights"


@feature("Sampling", "a sampler of a checkpoint")
def _(client):
    path = client.training.save_weights_for_sampler("for-sampler").result().path
    assert drawn(client, client.service.create_sampling_client(model_path=path)).sequences


@feature("Sampling", "a pickled sampling client")
def _(client):
    os.environ["TINKER_API_KEY"], os.environ["TINKER_BASE_URL"] = client.key, client.url
    assert drawn(client, pickle.loads(pickle.dumps(client.sampling))).sequences


@feature("Sampling", "many samples at once")
def _(client):
    params = types.SamplingParams(max_tokens=4)
    futures = [client.sampling.sample(prompt(TEXT[:8]), num_samples=1, sampling_params=params) for _ in range(200)]
    assert all(future.result().sequences for future in futures)


@feature("Sampling", "the asynchronous calls")
def _(client):
    async def both():
        params = types.SamplingParams(max_tokens=4)
        sampled = client.sampling.sample_async(prompt(TEXT[:8]), num_samples=1, sampling_params=params)
        passed = await client.training.forward_async([datum(TEXT)], "cross_entropy")
        return await sampled, await passed.result_async()
    sampled, passed = asyncio.run(both())
    assert sampled.sequences and passed.metrics["loss:sum"] > 0
