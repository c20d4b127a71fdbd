"""Tests training through the unmodified SDK."""
import numpy as np
import pytest
import tinker
from tinker import types

from conftest import service_client
from examples_of_data import datum, logprobs_of, prompt, rl_datum, tokens_of
from raw_client import forward_backward, pb, tensor
from tuft_server import MODEL

ADAM = types.AdamParams(learning_rate=5e-3)
TEXT = "the answer is tuft"


def train(client, steps, text=TEXT, adam=ADAM):
    losses = []
    for _ in range(steps):
        passed, stepped = client.forward_backward([datum(text)], "cross_entropy"), client.optim_step(adam)
        losses.append(passed.result().metrics["loss:sum"])
        stepped.result()
    return losses


def loss_of(client, text=TEXT):
    return client.forward([datum(text)], "cross_entropy").result().metrics["loss:sum"]


def test_training_lowers_the_loss_and_the_sampler_has_learned_it(alice):
    client = alice.create_lora_training_client(base_model=MODEL, rank=8, seed=1)
    losses = train(client, 40)
    assert losses[-1] < 0.3 * losses[0], losses
    sampler = client.save_weights_and_get_sampling_client()
    answer = sampler.sample(prompt(TEXT[:6]), num_samples=1,
                            sampling_params=types.SamplingParams(max_tokens=len(TEXT) - 6, temperature=0.0)).result()
    assert bytes(answer.sequences[0].tokens).decode() == TEXT[6:]


def test_the_first_loss_is_that_of_the_base_model(alice):
    base = alice.create_sampling_client(base_model=MODEL)
    expected = base.compute_logprobs(prompt(TEXT)).result()
    client = alice.create_lora_training_client(base_model=MODEL, rank=4, seed=3)
    output = client.forward([datum(TEXT)], "cross_entropy").result()
    got = logprobs_of(output)[0]
    assert expected[0] is None
    np.testing.assert_allclose(got, expected[1:], atol=1e-4)
    assert output.metrics["loss:sum"] == pytest.approx(-np.sum(got), rel=1e-5)


def test_optim_step_reports_grad_norm_and_learning_rate(alice):
    client = alice.create_lora_training_client(base_model=MODEL, rank=4, seed=1)
    client.forward_backward([datum(TEXT)], "cross_entropy").result()
    metrics = client.optim_step(types.AdamParams(learning_rate=2e-4, weight_decay=0.01, grad_clip_norm=1.0)).result().metrics
    assert metrics["grad_norm"] > 0
    assert metrics["learning_rate"] == pytest.approx(2e-4)
    assert metrics["optimizer_step"] == 1
    assert "step" not in metrics, "recipes log a step of their own beside these"


def test_save_state_and_resume_with_the_optimizer_continues_exactly(alice, server):
    client = alice.create_lora_training_client(base_model=MODEL, rank=8, seed=5)
    train(client, 5)
    path = client.save_state("halfway").result().path
    assert path.startswith("tinker://") and path.endswith("/weights/halfway")
    continued = train(client, 5)

    resumed = service_client(server).create_training_client_from_state_with_optimizer(path)
    assert train(resumed, 5) == pytest.approx(continued, rel=1e-3)


def test_resume_without_the_optimizer_has_the_weights_and_fresh_moments(alice):
    client = alice.create_lora_training_client(base_model=MODEL, rank=8, seed=5)
    train(client, 5)
    path = client.save_state("weights-only").result().path
    at_save = loss_of(client)
    resumed = alice.create_training_client_from_state(path)
    assert loss_of(resumed) == pytest.approx(at_save, rel=1e-4)
    resumed.forward_backward([datum(TEXT)], "cross_entropy").result()
    assert resumed.optim_step(ADAM).result().metrics["optimizer_step"] == 1


def test_load_state_brings_back_what_was_saved(alice):
    client = alice.create_lora_training_client(base_model=MODEL, rank=8, seed=6)
    train(client, 3)
    path = client.save_state("before").result().path
    before = loss_of(client)
    train(client, 5)
    assert loss_of(client) < before
    client.load_state_with_optimizer(path).result()
    assert loss_of(client) == pytest.approx(before, rel=1e-5)


def test_a_taken_name_is_a_user_error_and_overwrite_replaces_it(alice):
    client = alice.create_lora_training_client(base_model=MODEL, rank=4, seed=1)
    client.save_state("name").result()
    with pytest.raises(tinker.RequestFailedError, match="name"):
        client.save_state("name").result()
    assert client.save_state("name", overwrite=True).result().path.endswith("/weights/name")


def test_named_and_unnamed_samplers_keep_their_snapshot(alice):
    client = alice.create_lora_training_client(base_model=MODEL, rank=8, seed=2)
    train(client, 3)
    named = alice.create_sampling_client(model_path=client.save_weights_for_sampler("v1").result().path)
    unnamed = client.save_weights_and_get_sampling_client()
    before = named.compute_logprobs(prompt(TEXT)).result()
    assert unnamed.compute_logprobs(prompt(TEXT)).result() == before
    train(client, 5)
    assert named.compute_logprobs(prompt(TEXT)).result() == before
    after = client.save_weights_and_get_sampling_client().compute_logprobs(prompt(TEXT)).result()
    assert sum(after[1:]) > sum(before[1:])


def test_forward_leaves_the_accumulated_gradient_alone(alice):
    def norm(with_forward):
        client = alice.create_lora_training_client(base_model=MODEL, rank=4, seed=9)
        client.forward_backward([datum(TEXT)], "cross_entropy").result()
        if with_forward:
            client.forward([datum("something else")], "cross_entropy").result()
        return client.optim_step(ADAM).result().metrics["grad_norm"]

    assert norm(True) == pytest.approx(norm(False), rel=1e-6)


def test_gradients_of_several_passes_add_up(alice):
    def norm(batches):
        client = alice.create_lora_training_client(base_model=MODEL, rank=4, seed=9)
        for batch in batches:
            client.forward_backward(batch, "cross_entropy")
        return client.optim_step(ADAM).result().metrics["grad_norm"]

    one, two = datum(TEXT), datum("another text")
    assert norm([[one], [two]]) == pytest.approx(norm([[one, two]]), rel=1e-4)


def test_chunks_that_arrive_out_of_order_make_one_step(alice):
    """With more datums than fwdbwd_max_chunk_len, the SDK sends chunk 2 first and waits for its acknowledgement."""
    client = alice.create_lora_training_client(base_model=MODEL, rank=4, seed=1)
    data = [datum("ab" + chr(97 + i % 26)) for i in range(1500)]
    passed, stepped = client.forward_backward(data, "cross_entropy"), client.optim_step(ADAM)
    output = passed.result()
    assert len(output.loss_fn_outputs) == len(data)
    assert output.metrics["loss:sum"] == pytest.approx(-sum(float(a.sum()) for a in logprobs_of(output)), rel=1e-4)
    assert stepped.result().metrics["optimizer_step"] == 1


def test_weights_scale_the_loss_and_zero_weights_are_skipped(alice):
    client = alice.create_lora_training_client(base_model=MODEL, rank=4, seed=1)
    count = len(tokens_of(TEXT)) - 1
    weights = [0.0] * (count - 2) + [2.0, -1.0]
    output = client.forward([datum(TEXT, weights)], "cross_entropy").result()
    logprobs = logprobs_of(output)[0]
    assert len(logprobs) == count
    assert output.metrics["loss:sum"] == pytest.approx(-float(np.dot(weights, logprobs)), rel=1e-4)


def test_soft_targets_with_two_dimensions(alice):
    client = alice.create_lora_training_client(base_model=MODEL, rank=4, seed=1)
    tokens = tokens_of("soft")
    targets = np.array([[t, (t + 1) % 256] for t in tokens[1:]], np.int64)
    weights = np.tile(np.array([0.75, 0.25], np.float32), (3, 1))
    one = types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]),
                      loss_fn_inputs={"target_tokens": targets, "weights": weights})
    output = client.forward_backward([one], "cross_entropy").result()
    logprobs = logprobs_of(output)[0]
    assert logprobs.shape == (3, 2)
    assert output.metrics["loss:sum"] == pytest.approx(-float((weights * logprobs).sum()), rel=1e-4)


def test_sparse_targets_and_weights_give_what_dense_ones_do(raw):
    model = raw.model(MODEL)
    targets = np.array([[2, 0, 9], [3, 0, 0], [0, 0, 0], [5, 6, 7]], np.int64)
    weights = np.where(targets > 0, np.float32(0.25) * targets, np.float32(0)).astype(np.float32)

    def sparse(dense):
        rows, columns = np.nonzero(dense)
        crow = np.searchsorted(rows, np.arange(len(dense) + 1)).astype(np.int64)
        dtype = pb.DTYPE_FLOAT32 if dense.dtype == np.float32 else pb.DTYPE_INT64
        return pb.Tensor(dtype=dtype, shape=dense.shape, sparse_csr=pb.SparseCsr(
            values=dense[rows, columns].tobytes(), crow_indices=crow.tobytes(),
            col_indices=columns.astype(np.int64).tobytes()))

    def output(seq_id, encode):
        message = forward_backward(model, seq_id, forward_only=True)
        message.data[0].loss_fn_inputs["target_tokens"].CopyFrom(encode(targets))
        message.data[0].loss_fn_inputs["weights"].CopyFrom(encode(weights))
        answer = raw.result(raw.train(model, seq_id, message), protobuf=True)
        return pb.ForwardBackwardOutput.FromString(answer.body)

    dense = output(1, tensor)
    assert dense.metrics["loss:sum"] > 0
    assert output(2, sparse).SerializeToString(deterministic=True) == dense.SerializeToString(deterministic=True)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_a_temperature_divides_the_logits(alice, temperature):
    """Differences between the log-probabilities of two tokens are differences of their logits."""
    client = alice.create_lora_training_client(base_model=MODEL, rank=4, seed=1)
    tokens = tokens_of("warm")
    targets = np.array([[t, (t + 1) % 256] for t in tokens[1:]], np.int64)
    one = types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]),
                      loss_fn_inputs={"target_tokens": targets, "weights": np.ones((3, 2), np.float32)})

    def differences(config):
        logprobs = logprobs_of(client.forward([one], "cross_entropy", loss_fn_config=config).result())[0]
        return logprobs[:, 0] - logprobs[:, 1]

    np.testing.assert_allclose(differences({"temperature": temperature}), differences(None) / temperature, atol=1e-5)


def test_importance_sampling_at_ratio_one_and_off_policy(alice):
    client = alice.create_lora_training_client(base_model=MODEL, rank=4, seed=1)
    tokens = tokens_of("reward me")
    new = logprobs_of(client.forward([datum("reward me")], "cross_entropy").result())[0]
    advantages = np.linspace(-1, 1, len(new)).astype(np.float32)
    on_policy = client.forward_backward([rl_datum(tokens, new.tolist(), advantages.tolist())], "importance_sampling").result()
    assert on_policy.metrics["loss:sum"] == pytest.approx(-float(advantages.sum()), abs=1e-3)
    old = new - 0.5
    off_policy = client.forward_backward([rl_datum(tokens, old.tolist(), advantages.tolist())], "importance_sampling").result()
    expected = -float((np.exp(new - old) * advantages).sum())
    assert off_policy.metrics["loss:sum"] == pytest.approx(expected, abs=1e-3)
    np.testing.assert_allclose(logprobs_of(off_policy)[0], new, atol=1e-4)


@pytest.mark.parametrize("loss_fn, config, expected", [
    ("ppo", {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2},
     lambda new, r, a, d: -np.minimum(r * a, np.clip(r, 0.8, 1.2) * a)),
    ("cispo", None, lambda new, r, a, d: -np.clip(r, 0.0, 4.0) * new * a),
    ("dro", {"beta": 0.05}, lambda new, r, a, d: 0.5 * 0.05 * d ** 2 - new * a),
])
def test_the_other_losses_of_policy_gradients(alice, loss_fn, config, expected):
    client = alice.create_lora_training_client(base_model=MODEL, rank=4, seed=1)
    tokens = tokens_of("reward me")
    new = logprobs_of(client.forward([datum("reward me")], "cross_entropy").result())[0].astype(np.float64)
    distance = np.linspace(-0.4, 0.4, len(new))
    advantages = np.where(np.arange(len(new)) % 2 == 0, 1.0, -0.5)
    data = [rl_datum(tokens, (new - distance).tolist(), advantages.tolist())]
    output = client.forward_backward(data, loss_fn, loss_fn_config=config).result()
    assert output.metrics["loss:sum"] == pytest.approx(expected(new, np.exp(distance), advantages, distance).sum(), abs=1e-3)


def test_a_reward_loop_with_sampling_in_it_raises_the_reward(alice):
    """Samples, scores (closeness to the letter a), trains with importance_sampling, steps: the policy improves."""
    client = alice.create_lora_training_client(base_model=MODEL, rank=8, seed=4)
    start = tokens_of("go:")
    target = ord("a")

    def mean_logprob():
        sampler = client.save_weights_and_get_sampling_client()
        return sampler.compute_logprobs(types.ModelInput.from_ints(start + [target])).result()[-1]

    before = mean_logprob()
    params = types.SamplingParams(max_tokens=1, temperature=1.0, seed=11)
    for _ in range(4):
        sampler = client.save_weights_and_get_sampling_client()
        group = sampler.sample(types.ModelInput.from_ints(start), num_samples=8, sampling_params=params).result()
        data = []
        for sequence in group.sequences:
            tokens = start + list(sequence.tokens)
            prompt_part = [0.0] * (len(start) - 1)
            # The letter itself is sampled too rarely, so the reward is the closeness to it.
            reward = 1.0 - abs(sequence.tokens[0] - target) / 256.0
            data.append(rl_datum(tokens, prompt_part + list(sequence.logprobs), prompt_part + [reward]))
        data.append(rl_datum(start + [target], [0.0] * (len(start) - 1) + [mean_logprob()], [0.0] * (len(start) - 1) + [4.0]))
        client.forward_backward(data, "importance_sampling")
        client.optim_step(ADAM).result()
    assert mean_logprob() > before


def test_the_two_passes_of_a_custom_loss_by_hand(alice):
    """Repeats forward_backward_custom: forward, dLoss/dlogprobs in the client, cross_entropy with signed weights."""
    client = alice.create_lora_training_client(base_model=MODEL, rank=8, seed=7)

    def logprobs():
        return logprobs_of(client.forward([datum(TEXT)], "cross_entropy").result())[0].astype(np.float64)

    wanted = -1.0  # the target log-probability of every token: loss = sum (lp - wanted)^2
    first = ((logprobs() - wanted) ** 2).sum()
    for _ in range(12):
        gradient = 2 * (logprobs() - wanted)
        client.forward_backward([datum(TEXT, (-gradient).astype(np.float32).tolist())], "cross_entropy")
        client.optim_step(ADAM).result()
    assert ((logprobs() - wanted) ** 2).sum() < 0.5 * first


def test_forward_backward_custom(alice):
    torch = pytest.importorskip("torch", reason="forward_backward_custom needs torch, which the tests do not install; "
                                                "the test above does its two passes by hand")
    client = alice.create_lora_training_client(base_model=MODEL, rank=4, seed=7)

    def loss(_, logprobs):
        total = torch.stack([one.sum() for one in logprobs]).sum()
        return -total, {"total": float(total)}

    output = client.forward_backward_custom([datum(TEXT)], loss).result()
    assert "total" in output.metrics
    assert client.optim_step(ADAM).result().metrics["grad_norm"] > 0


def test_an_unknown_loss_fails_its_future_and_the_next_step_works(raw):
    client, model = raw, raw.model(MODEL)
    answer = client.result(client.train(model, 1, forward_backward(model, 1, loss="no_such_loss")), protobuf=True)
    failed = answer.json.get("error") or answer.json.get("detail")
    assert "no_such_loss" in failed
    assert client.result(client.train(model, 2), protobuf=True).status == 200


def test_targets_of_lora_and_seed(alice):
    first = alice.create_lora_training_client(base_model=MODEL, rank=4, seed=1, train_mlp=False, train_unembed=False)
    second = alice.create_lora_training_client(base_model=MODEL, rank=4, seed=1, train_mlp=False, train_unembed=False)
    other = alice.create_lora_training_client(base_model=MODEL, rank=4, seed=2, train_mlp=False, train_unembed=False)
    losses = [train(client, 4)[-1] for client in (first, second, other)]
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]


def test_get_info_and_the_tokenizer(alice, model_dir):
    client = alice.create_lora_training_client(base_model=MODEL, rank=4)
    info = client.get_info()
    assert info.model_data.model_name == MODEL
    assert info.is_lora and info.lora_rank == 4
    tokenizer = client.get_tokenizer()
    assert tokenizer.decode(tokenizer.encode("round trip")) == "round trip"


def test_capabilities_name_the_model(alice):
    models = alice.get_server_capabilities().supported_models
    assert [(model.model_name, model.max_context_length) for model in models] == [(MODEL, 256)]
