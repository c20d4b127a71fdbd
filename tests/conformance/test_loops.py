"""Small versions of the loops that people run on Tinker: supervised, reinforcement, custom losses, distillation,
resuming, few checkpoints. Each follows tinker-cookbook: pipelined, asynchronous, with snapshots for sampling."""
import asyncio
import dataclasses
import math

import numpy as np
import pytest
import tinker
from tinker import types

from conftest import service_client
from examples_of_data import datum, logprobs_of, prompt, rl_datum, tokens_of
from tuft_server import MODEL, TuftServer, configuration, wait_until

WORDS = ["red", "green", "blue", "white"]


def sentences():
    """Many examples of one rule: the answer repeats the word."""
    return [f"say {word} {i}: {word}!" for i in range(3) for word in WORDS]


# ---- supervised

def nll(client, texts):
    output = client.forward([datum(text) for text in texts], "cross_entropy").result()
    return output.metrics["loss:sum"] / sum(len(one) for one in logprobs_of(output))


def supervised(client, texts, steps, start=0, total=None, batch=4, peak=1e-2):
    """Trains on batches in a fixed order at a linearly falling rate; does not wait for a step before the next one."""
    total, submitted = total or steps, []
    for step in range(start, start + steps):
        chosen = [texts[(step * batch + i) % len(texts)] for i in range(batch)]
        rate = types.AdamParams(learning_rate=peak * (1 - step / total), beta1=0.9, beta2=0.95, eps=1e-8)
        submitted.append((client.forward_backward([datum(text) for text in chosen], "cross_entropy"),
                          client.optim_step(rate)))
    losses = []
    for passed, stepped in submitted:
        losses.append(passed.result().metrics["loss:sum"])
        stepped.result()
    return losses


def test_supervised_learning_generalises_to_what_it_has_not_seen(alice):
    client = alice.create_lora_training_client(base_model=MODEL, rank=16, seed=1)
    held_out = [f"say {word} 7: {word}!" for word in WORDS]
    before = nll(client, held_out)
    losses = supervised(client, sentences(), 30)
    assert np.mean(losses[-3:]) < 0.4 * np.mean(losses[:3]), losses
    assert nll(client, held_out) < 0.6 * before


def test_weights_mask_the_prompt(alice):
    """Only tokens with a weight above 0, the completion, are learned."""
    client = alice.create_lora_training_client(base_model=MODEL, rank=8, seed=1)
    asked, answered = "question?", " answer"
    weights = [0.0] * (len(asked) - 1) + [1.0] * len(answered)

    def parts():
        logprobs = logprobs_of(client.forward([datum(asked + answered)], "cross_entropy").result())[0]
        return -logprobs[:len(asked) - 1].sum(), -logprobs[len(asked) - 1:].sum()

    prompt_before, answer_before = parts()
    for _ in range(15):
        client.forward_backward([datum(asked + answered, weights)], "cross_entropy")
        client.optim_step(types.AdamParams(learning_rate=5e-3)).result()
    prompt_after, answer_after = parts()
    assert answer_after < 0.3 * answer_before
    assert prompt_after > 0.6 * prompt_before


# ---- reinforcement

@dataclasses.dataclass
class Trajectory:
    prompt: list
    tokens: list
    logprobs: list
    reward: float

    def datum(self, advantage):
        unseen = [0.0] * (len(self.prompt) - 1)
        return rl_datum(self.prompt + self.tokens, unseen + self.logprobs, unseen + [advantage] * len(self.tokens))


def reward_of(tokens):
    """Returns the mean token value, 0 to 1. Dense, so that a few steps show an increase."""
    return float(np.mean([min(token, 255) / 255 for token in tokens]))


async def group(sampler, text, size, seed):
    answer = await sampler.sample_async(prompt(text), num_samples=size,
                                        sampling_params=types.SamplingParams(max_tokens=3, temperature=1.0, seed=seed))
    return [Trajectory(tokens_of(text), list(one.tokens), list(one.logprobs), reward_of(one.tokens))
            for one in answer.sequences]


def with_advantages(groups):
    """GRPO: the reward minus its group's mean, divided by the group's deviation. Omits groups of equal rewards."""
    data = []
    for members in groups:
        rewards = np.array([member.reward for member in members])
        if rewards.std() > 0:
            data += [member.datum(float(advantage))
                     for member, advantage in zip(members, (rewards - rewards.mean()) / rewards.std())]
    return data


async def policy_gradient(service, loss_fn, config, steps=8, substeps=1):
    client = await service.create_lora_training_client_async(base_model=MODEL, rank=8, seed=4)
    rewards = []
    for step in range(steps):
        sampler = await client.save_weights_and_get_sampling_client_async()
        groups = await asyncio.gather(*[group(sampler, text, 16, 100 * step + i) for i, text in enumerate(["go:", "now:"])])
        rewards.append(np.mean([member.reward for members in groups for member in members]))
        data = with_advantages(groups)
        for _ in range(substeps):
            passed = await client.forward_backward_async(data, loss_fn, config)
            stepped = await client.optim_step_async(types.AdamParams(learning_rate=2e-2 / substeps))
            output = await passed.result_async()
            await stepped.result_async()
            assert [len(one) for one in logprobs_of(output)] == [len(one.loss_fn_inputs["target_tokens"].data) for one in data]
    return rewards


@pytest.mark.parametrize("loss_fn, config, substeps", [
    ("importance_sampling", None, 1),
    ("ppo", {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}, 2),
    ("cispo", {"clip_low_threshold": 0.0, "clip_high_threshold": 4.0}, 2),
])
def test_groups_and_their_advantages_raise_the_reward(alice, loss_fn, config, substeps):
    rewards = asyncio.run(policy_gradient(alice, loss_fn, config, substeps=substeps))
    assert np.mean(rewards[-2:]) > np.mean(rewards[:2]) + 0.1, rewards


def test_the_trainer_scores_what_was_sampled_as_the_sampler_did(alice):
    """The two log-probabilities, whose difference RL recipes watch as KL, differ only by rounding."""
    client = alice.create_lora_training_client(base_model=MODEL, rank=8, seed=4)
    supervised(client, sentences(), 3)
    sampler = client.save_weights_and_get_sampling_client()
    members = asyncio.run(group(sampler, "go:", 8, 3))
    output = client.forward([member.datum(0.0) for member in members], "importance_sampling").result()
    for member, scored in zip(members, logprobs_of(output)):
        np.testing.assert_allclose(scored[-len(member.tokens):], member.logprobs, atol=2e-4)


def test_old_snapshots_keep_sampling_while_newer_ones_are_saved(alice):
    """Off-policy: the samplers of all versions work at the same time, each with the weights from which it was saved."""
    client = alice.create_lora_training_client(base_model=MODEL, rank=8, seed=4)
    versions, asked = [], types.SamplingParams(max_tokens=6, temperature=1.0, seed=21)

    async def run():
        pending = []
        for _ in range(5):
            sampler = await client.save_weights_and_get_sampling_client_async()
            first = await sampler.sample_async(prompt("go:"), num_samples=2, sampling_params=asked)
            versions.append((sampler, first))
            # They are still running when the next version is trained and saved.
            pending += [asyncio.ensure_future(group(old, "go:", 4, seed)) for seed, (old, _) in enumerate(versions)]
            members = await pending.pop(0)
            passed = await client.forward_backward_async([m.datum(m.reward - 0.5) for m in members], "importance_sampling")
            stepped = await client.optim_step_async(types.AdamParams(learning_rate=2e-2))
            assert math.isfinite((await passed.result_async()).metrics["loss:sum"])
            await stepped.result_async()
        await asyncio.gather(*pending)
        return await asyncio.gather(*[old.sample_async(prompt("go:"), num_samples=2, sampling_params=asked)
                                      for old, _ in versions])

    again = asyncio.run(run())
    seen = []
    for (_, first), second in zip(versions, again):
        assert [one.tokens for one in first.sequences] == [one.tokens for one in second.sequences]
        np.testing.assert_allclose(first.sequences[0].logprobs, second.sequences[0].logprobs, atol=1e-4)
        seen.append(tuple(first.sequences[0].logprobs))
    assert len(set(seen)) == len(seen), "two versions have the same policy"


# ---- custom losses, distillation

def test_a_preference_loss_in_torch_moves_the_chosen_above_the_rejected(alice):
    torch = pytest.importorskip("torch", reason="forward_backward_custom needs torch, which the tests do not install")
    client = alice.create_lora_training_client(base_model=MODEL, rank=8, seed=7)
    pair = [datum("which? this"), datum("which? that")]
    reference = [float(one.sum()) for one in logprobs_of(client.forward(pair, "cross_entropy").result())]

    def dpo(_, logprobs):
        chosen, rejected = [one.sum() - old for one, old in zip(logprobs, reference)]
        loss = -torch.nn.functional.logsigmoid(0.1 * (chosen - rejected))
        return loss, {"margin": float(chosen - rejected)}

    metrics = []
    for _ in range(8):
        metrics.append(client.forward_backward_custom(pair, dpo).result().metrics)
        client.optim_step(types.AdamParams(learning_rate=5e-3)).result()
    assert metrics[0]["margin"] == pytest.approx(0.0, abs=1e-3)
    assert metrics[-1]["margin"] > metrics[0]["margin"] + 1


def test_a_student_takes_the_distribution_of_its_teacher(alice):
    """The teacher's most probable tokens become two-dimensional soft targets."""
    teacher = alice.create_lora_training_client(base_model=MODEL, rank=8, seed=1)
    supervised(teacher, sentences(), 10)
    scorer = teacher.save_weights_and_get_sampling_client()
    text, k = sentences()[0], 8
    answer = scorer.sample(prompt(text), num_samples=1, sampling_params=types.SamplingParams(max_tokens=1),
                           include_prompt_logprobs=True, topk_prompt_logprobs=k).result()
    rows = answer.topk_prompt_logprobs[1:]
    targets = np.array([[token for token, _ in row] for row in rows], np.int64)
    weights = np.exp(np.array([[logprob for _, logprob in row] for row in rows])).astype(np.float32)
    one = types.Datum(model_input=types.ModelInput.from_ints(tokens_of(text)[:-1]),
                      loss_fn_inputs={"target_tokens": targets, "weights": weights})

    student = alice.create_lora_training_client(base_model=MODEL, rank=8, seed=2)
    losses = []
    for _ in range(20):
        passed = student.forward_backward([one], "cross_entropy")
        student.optim_step(types.AdamParams(learning_rate=5e-3)).result()
        losses.append(passed.result().metrics["loss:sum"])
    entropy = -float((weights * np.log(weights)).sum())
    assert losses[-1] - entropy < 0.3 * (losses[0] - entropy), (losses, entropy)


# ---- resuming, keeping few checkpoints

@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_resuming_in_another_server_gives_the_losses_that_would_have_come(end, model_dir, tmp_path):
    config = configuration(model_dir, persistence={"mode": "FILE"})
    first = TuftServer(tmp_path / "home", config).start()
    client = service_client(first).create_lora_training_client(base_model=MODEL, rank=8, seed=5)
    supervised(client, sentences(), 6, total=12)
    path = client.save_state("six", ttl_seconds=3600).result().path
    expected = supervised(client, sentences(), 6, start=6, total=12)
    if end == "stopped":
        assert first.stop()[0] == 0
    else:
        first.process.kill()
        first.wait_exit()
        (first.home / "tuft_current_server").unlink()
    with TuftServer(tmp_path / "home", config) as second:
        resumed = service_client(second).create_training_client_from_state_with_optimizer(path)
        assert supervised(resumed, sentences(), 6, start=6, total=12) == expected
        # Without the optimizer's moments the losses differ from the second step on.
        fresh = service_client(second).create_training_client_from_state(path)
        other = supervised(fresh, sentences(), 6, start=6, total=12)
        assert other[0] == expected[0] and other[1:] != expected[1:]


def test_rolling_checkpoints_leave_the_last_ones_and_resume_from_them(alice, server):
    """Each step is saved with a time limit, older saves than the last two are deleted, and the final save stays."""
    client, rest = alice.create_lora_training_client(base_model=MODEL, rank=8, seed=5), alice.create_rest_client()
    kept = []
    for step in range(5):
        supervised(client, sentences(), 1, start=step, total=6)
        kept.append((client.save_state(f"{step:06d}", ttl_seconds=600).result().path,
                     client.save_weights_for_sampler(f"{step:06d}", ttl_seconds=600).result().path))
        if len(kept) > 2:
            for path in kept.pop(0):
                rest.delete_checkpoint_from_tinker_path(path).result()
    final = client.save_state("final").result().path
    listed = {one.tinker_path: one for one in rest.list_checkpoints(client.model_id).result().checkpoints}
    assert set(listed) == {path for pair in kept for path in pair} | {final}
    assert {path for path, one in listed.items() if one.expires_at is None} == {final}
    wait_until(lambda: len(list((server.home / "checkpoints").glob("*/weights/00*"))) == 2, 20, "the files go, too")
    resumed = alice.create_training_client_from_state_with_optimizer(kept[-1][0])
    assert nll(resumed, WORDS) == nll(client, WORDS)
    with pytest.raises(tinker.TinkerError):
        alice.create_training_client_from_state(final.replace("final", "000000"))
