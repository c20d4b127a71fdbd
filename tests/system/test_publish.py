"""Tests versions for samplers, and adapters that do not fit into memory, through the unmodified SDK."""
import re

import pytest
from tinker import types

from conftest import service_client
from examples_of_data import datum, prompt
from tuft_server import MODEL, TuftServer, configuration, wait_until

ADAM = types.AdamParams(learning_rate=5e-3)
TEXTS = ["the answer is tuft", "one two three four", "a b c d e f g h i", "so it goes on and on"]
GREEDY = types.SamplingParams(max_tokens=8, temperature=0.0)


def interleaved_losses(client, steps=6):
    """Trains several runs in turn. Each run's gradient waits while the other runs compute theirs."""
    runs = [client.create_lora_training_client(base_model=MODEL, rank=8, seed=i) for i in range(len(TEXTS))]
    losses = []
    for _ in range(steps):
        for run, text in zip(runs, TEXTS):
            losses.append(run.forward_backward([datum(text)], "cross_entropy").result().metrics["loss:sum"])
        for run in runs:
            losses.append(run.optim_step(ADAM).result().metrics["grad_norm"])
    return losses, runs


def samples_of(samplers):
    futures = [sampler.sample(prompt(text[:4]), 1, GREEDY) for sampler, text in zip(samplers, TEXTS)]
    return [list(future.result().sequences[0].tokens) for future in futures]


@pytest.fixture(scope="module")
def small(model_dir, tmp_path_factory):
    """A server whose adapter memory holds one adapter of the maximum rank and a version of it."""
    config = configuration(model_dir, model={"max_lora_rank": 8, "adapter_memory_bytes": 1})
    with pytest.raises(AssertionError) as refused:
        TuftServer(tmp_path_factory.mktemp("refused"), config).start()
    least = int(re.search(r"as a published version: (\d+) bytes", str(refused.value)).group(1))
    config["supported_models"][0]["adapter_memory_bytes"] = least
    with TuftServer(tmp_path_factory.mktemp("small"), config) as server:
        yield server


def test_paged_runs_train_with_the_same_bits(small, alice):
    paged, paged_runs = interleaved_losses(service_client(small))
    stayed, runs = interleaved_losses(alice)
    assert paged == stayed
    assert small.metric("tuft_lora_page_io_bytes_total", direction="in") > 0
    before = samples_of([run.save_weights_and_get_sampling_client() for run in runs])
    assert samples_of([run.save_weights_and_get_sampling_client() for run in paged_runs]) == before


def test_more_versions_than_fit_answer_as_they_were(small):
    run = service_client(small).create_lora_training_client(base_model=MODEL, rank=8, seed=1)
    samplers, answers = [], []
    for _ in range(8):
        for _ in range(5):
            run.forward_backward([datum(TEXTS[0])], "cross_entropy")
            run.optim_step(ADAM).result()
        samplers.append(run.save_weights_and_get_sampling_client())
        answers.append(list(samplers[-1].sample(prompt(TEXTS[0][:4]), 1, GREEDY).result().sequences[0].tokens))
    assert len({tuple(answer) for answer in answers}) > 1
    for sampler, answer in zip(reversed(samplers), reversed(answers)):
        assert list(sampler.sample(prompt(TEXTS[0][:4]), 1, GREEDY).result().sequences[0].tokens) == answer
    assert small.metric("tuft_lora_adapters_paged", kind="sampler") > 0


def test_published_sampler_reads_no_file(server, alice):
    before = server.metric("tuft_lora_load_duration_seconds_count", source="disk")
    run = alice.create_lora_training_client(base_model=MODEL, rank=8, seed=1)
    run.save_weights_and_get_sampling_client().sample(prompt("ab"), 1, GREEDY).result()
    path = run.save_weights_for_sampler("named").result().path
    alice.create_sampling_client(model_path=path).sample(prompt("ab"), 1, GREEDY).result()
    assert server.metric("tuft_lora_load_duration_seconds_count", source="disk") == before
    assert server.metric("tuft_lora_publish_duration_seconds_count") >= 2
    wait_until(lambda: server.metric("tuft_training_checkpoints_saved_total", checkpoint_type="sampler") >= 2, 20,
               "both files are written")
