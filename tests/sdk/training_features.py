"""Sessions, training, losses, optimizers and checkpoints."""
import json
import math
import urllib.request

import tinker
from tinker import types

from examples_of_data import datum, logprobs_of, prompt, rl_datum, tokens_of
from feature import ADAM, TEXT, NotAsked, class_of, feature, learns, method, train


@feature("Sessions", "server capabilities")
def _(client):
    models = client.service.get_server_capabilities().supported_models
    assert client.model in [one.model_name for one in models]


@feature("Sessions", "user metadata of a session")
def _(client):
    method(tinker.ServiceClient, "__init__", "user_metadata")
    service = tinker.ServiceClient(base_url=client.url, api_key=client.key, user_metadata={"purpose": "matrix"})
    run = service.create_lora_training_client(base_model=client.model, rank=4)
    session = run.get_info().model_id.split(":")[0]
    found = client.rest.get_session(session).result()
    if not hasattr(found, "user_metadata"):
        raise NotAsked("user_metadata in get_session")
    assert found.user_metadata == {"purpose": "matrix"}, found


@feature("Sessions", "display_name")
def _(client):
    method(tinker.ServiceClient, "__init__", "display_name")
    service = tinker.ServiceClient(base_url=client.url, api_key=client.key, display_name="matrix of versions")
    run = service.create_lora_training_client(base_model=client.model, rank=4)
    session = run.get_info().model_id.split(":")[0]
    assert client.rest.get_session(session).result().display_name == "matrix of versions"


@feature("Sessions", "finishing a session (with ServiceClient)")
def _(client):
    method(tinker.ServiceClient, "__enter__")
    with tinker.ServiceClient(base_url=client.url, api_key=client.key) as service:
        service.get_server_capabilities()
        service.create_sampling_client(base_model=client.model)


@feature("Sessions", "searching sessions")
def _(client):
    search = method(client.rest, "search_sessions")
    request = class_of("SessionSearchRequest")
    found = search(request(user_metadata={}, owner={"type": "own"}, limit=5)).result()
    assert found.sessions, found


@feature("Training", "create a run, get_info")
def _(client):
    info = client.training.get_info()
    assert info.lora_rank == 8 and info.model_data.model_name == client.model, info


@feature("Training", "forward")
def _(client):
    output = client.training.forward([datum(TEXT)], "cross_entropy").result()
    assert output.metrics["loss:sum"] > 0 and len(logprobs_of(output)[0]) == len(TEXT) - 1


@feature("Training", "forward_backward and optim_step (AdamW)")
def _(client):
    learns(train(client.new_run(), 10))


@feature("Training", "gradient clipping and weight decay")
def _(client):
    run = client.new_run()
    run.forward_backward([datum(TEXT)], "cross_entropy").result()
    metrics = run.optim_step(types.AdamParams(learning_rate=1e-3, weight_decay=0.1, grad_clip_norm=1.0)).result().metrics
    assert metrics["grad_norm"] > 0, metrics


@feature("Training", "learning_rate=nan is refused")
def _(client):
    run = client.new_run()
    run.forward_backward([datum(TEXT)], "cross_entropy").result()
    try:
        run.optim_step(types.AdamParams(learning_rate=math.nan)).result()
    except ValueError as error:
        raise NotAsked(f"the client does not send it: {error}") from None
    except Exception as error:  # noqa: BLE001
        assert "learning_rate" in str(error), error
        return
    raise AssertionError("the step was taken")


@feature("Training", "many datums in chunks")
def _(client):
    output = client.new_run().forward_backward([datum(TEXT)] * 1100, "cross_entropy").result()
    assert len(output.loss_fn_outputs) == 1100


def rl_data(client, **inputs):
    """Returns a datum of reinforcement learning whose sampler was the run itself."""
    tokens = tokens_of(TEXT)
    return rl_datum(tokens, [-2.0] * (len(tokens) - 1), [1.0] * (len(tokens) - 1))


for loss_fn in ("importance_sampling", "ppo", "cispo", "dro"):
    @feature("Losses", loss_fn)
    def _(client, loss_fn=loss_fn):
        run = client.new_run()
        arguments = {"loss_fn_config": {"beta": 0.1}} if loss_fn == "dro" else {}
        output = run.forward_backward([rl_data(client)], loss_fn, **arguments).result()
        assert math.isfinite(output.metrics["loss:sum"])
        assert run.optim_step(ADAM).result().metrics["grad_norm"] > 0


@feature("Losses", "thresholds by loss_fn_config")
def _(client):
    output = client.new_run().forward_backward([rl_data(client)], "ppo",
                                               loss_fn_config={"clip_low_threshold": 0.9, "clip_high_threshold": 1.1})
    assert math.isfinite(output.result().metrics["loss:sum"])


@feature("Losses", "an unknown key of loss_fn_config is refused")
def _(client):
    try:
        client.new_run().forward_backward([rl_data(client)], "ppo", loss_fn_config={"clip_hihg_threshold": 1.1}).result()
    except Exception as error:  # noqa: BLE001
        assert "clip_hihg_threshold" in str(error), error
        return
    raise AssertionError("the key was ignored")


@feature("Losses", "gspo")
def _(client):
    if "gspo" not in str(types.LossFnType):
        raise NotAsked("gspo")
    one = rl_data(client)
    one.loss_fn_inputs["sequence_ratio_mask"] = types.TensorData(
        data=[1.0] * (len(TEXT) - 1), dtype="float32", shape=[len(TEXT) - 1])
    output = client.new_run().forward_backward([one], "gspo").result()
    assert math.isfinite(output.metrics["loss:sum"])


@feature("Losses", "stable_reinforce")
def _(client):
    if "stable_reinforce" not in str(types.LossFnType):
        raise NotAsked("stable_reinforce")
    run = client.new_run()
    sampler = run.save_weights_and_get_sampling_client(record_stability_info=True)
    asked = tokens_of(TEXT[:6])
    drawn = sampler.sample(prompt(TEXT[:6]), num_samples=1, sampling_params=types.SamplingParams(max_tokens=6, stop=[])
                           ).result().sequences[0]
    tokens = [*asked, *drawn.tokens]
    count, prompted = len(tokens) - 1, len(asked) - 1
    one = stable_datum(tokens, drawn, asked, count, prompted)
    output = run.forward_backward([one], "stable_reinforce").result()
    # The weights are the sampler's, so that it is REINFORCE.
    assert math.isclose(output.metrics["loss:sum"], -sum(drawn.logprobs), rel_tol=1e-3), output.metrics


def stable_datum(tokens, drawn, asked, count, prompted):
    sampled, given = class_of("SampledProvenanceSpan"), class_of("PromptProvenanceSpan")
    name = drawn.sequence_id
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:], "logprobs": [0.0] * prompted + list(drawn.logprobs),
                        "advantages": [0.0] * prompted + [1.0] * len(drawn.tokens)},
        model_input_spans=[given(sequence_id=name, offset=0, length=len(asked)),
                           sampled(sequence_id=name, offset=0, length=count - len(asked))],
        loss_fn_input_spans=[given(sequence_id=name, offset=1, length=prompted),
                             sampled(sequence_id=name, offset=0, length=len(drawn.tokens))])


@feature("Optimizers", "dimuon")
def _(client):
    config, params = class_of("DimuonOptimizerConfig"), class_of("DimuonParams")
    run = client.new_run(optimizer=config())
    learns(train(run, 10, adam=params(learning_rate=0.05)))


@feature("Optimizers", "a step of another family is refused")
def _(client):
    params = class_of("DimuonParams")
    run = client.new_run()
    run.forward_backward([datum(TEXT)], "cross_entropy").result()
    try:
        run.optim_step(params(learning_rate=0.02)).result()
    except Exception as error:  # noqa: BLE001
        assert "dimuon" in str(error) or "optimizer_params" in str(error), error
        return
    raise AssertionError("the step was taken")


@feature("Checkpoints", "save_state")
def _(client):
    assert client.saved.endswith("/weights/shared")


@feature("Checkpoints", "save_state with a time to live, overwriting")
def _(client):
    run = client.training
    method(run, "save_state", "ttl_seconds", "overwrite")
    run.save_state("again", ttl_seconds=3600).result()
    run.save_state("again", ttl_seconds=7200, overwrite=True).result()


@feature("Checkpoints", "user metadata of a checkpoint")
def _(client):
    run = client.training
    method(run, "save_state", "user_metadata")
    run.save_state("noted", user_metadata={"note": "n"}).result()
    found = [one for one in client.rest.list_checkpoints(client.run_id()).result().checkpoints
             if one.checkpoint_id == "weights/noted"]
    assert found and found[0].user_metadata == {"note": "n"}, found


@feature("Checkpoints", "load_state")
def _(client):
    client.new_run().load_state(client.saved).result()


@feature("Checkpoints", "load_state_with_optimizer")
def _(client):
    client.new_run().load_state_with_optimizer(client.saved).result()


@feature("Checkpoints", "a new run from a checkpoint")
def _(client):
    assert client.service.create_training_client_from_state(client.saved).get_info().lora_rank == 8


@feature("Checkpoints", "resume with the optimizer")
def _(client):
    train(client.service.create_training_client_from_state_with_optimizer(client.saved), 1)


@feature("Checkpoints", "copy_weights")
def _(client):
    copy = method(client.rest, "copy_weights")
    path = copy(client.saved, destination_project_id="project-of-the-matrix", ttl_seconds=7200).result()
    path = getattr(path, "tinker_path", path)
    assert client.service.create_training_client_from_state(path).get_info().lora_rank == 8


@feature("Checkpoints", "save_weights_external and its URLs")
def _(client):
    save = method(client.training, "save_weights_external")
    path = save("outside", ttl_seconds=3600).result().path
    urls = client.rest.get_external_weights_urls(path).result().urls
    assert sorted(urls) == ["adapter_config.json", "adapter_model.safetensors"], urls
    with urllib.request.urlopen(urls["adapter_config.json"], timeout=30) as answer:
        assert json.load(answer)["r"] == 8


@feature("Checkpoints", "archive of a checkpoint")
def _(client):
    sampled = client.training.save_weights_for_sampler("archived").result().path
    url = method(client.rest, "get_checkpoint_archive_url_from_tinker_path")(sampled).result().url
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert len(answer.read()) > 1000
