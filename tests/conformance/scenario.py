"""The actions that record.py records. `python scenario.py URL KEY PART` runs one part with this Python's Tinker SDK,
0.18.0 or newer. All of it is repeatable: seeds, names, one request after the other."""
import sys

import tinker
from tinker import types

TEXT = "the answer is tuft"
GREEDY = {"max_tokens": 4, "temperature": 0.0}
ADAM = types.AdamParams(learning_rate=5e-3, beta1=0.9, beta2=0.95, eps=1e-8)


def tokens_of(text):
    return list(text.encode())


def prompt(text=TEXT[:6]):
    return types.ModelInput.from_ints(tokens_of(text))


def datum(text=TEXT, **inputs):
    tokens = tokens_of(text)
    given = {"target_tokens": tokens[1:], **({"weights": [1.0] * (len(tokens) - 1)} if not inputs else inputs)}
    return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=given)


def failing(call):
    try:
        call()
    except (tinker.TinkerError, ValueError):  # older SDKs check some values themselves
        return
    raise AssertionError("the call did not fail")


def model(service, rank=4, **more):
    return service.create_lora_training_client(base_model="tiny", rank=rank, seed=1, **more)


def part_train(service):
    """The shortest useful workflow: train, save, sample, resume."""
    client = model(service)
    losses = []
    for _ in range(3):
        losses.append(client.forward_backward([datum(), datum("another")], "cross_entropy").result().metrics["loss:sum"])
        client.optim_step(ADAM).result()
    assert losses[2] < losses[0], losses
    client.forward([datum()], "cross_entropy").result()
    saved = client.save_state("state").result().path
    named = client.save_weights_for_sampler("sampler", ttl_seconds=3600).result().path
    for sampler in (client.save_weights_and_get_sampling_client(), service.create_sampling_client(model_path=named),
                    service.create_sampling_client(base_model="tiny")):
        answer = sampler.sample(prompt(), num_samples=2, sampling_params=types.SamplingParams(**GREEDY)).result()
        assert [len(one.tokens) for one in answer.sequences] == [len(one.logprobs) for one in answer.sequences]
        scored = sampler.compute_logprobs(prompt()).result()
        assert scored[0] is None and len(scored) == 6
    client.load_state(saved).result()
    resumed = service.create_training_client_from_state_with_optimizer(saved)
    resumed.forward_backward([datum()], "cross_entropy").result()
    resumed.optim_step(ADAM).result()


def part_losses(service):
    client = model(service)
    count = len(TEXT) - 1
    advantages = [1.0, -0.5] * count
    policy = {"logprobs": [-5.0] * count, "advantages": advantages[:count]}
    for loss, config in [("importance_sampling", None), ("ppo", {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}),
                         ("cispo", {"clip_low_threshold": 0.0, "clip_high_threshold": 4.0}), ("dro", {"beta": 0.05})]:
        client.forward_backward([datum(**policy)], loss, config).result()
    client.optim_step(types.AdamParams(learning_rate=1e-3, weight_decay=0.01, grad_clip_norm=1.0)).result()


def part_sampling(service):
    sampler = service.create_sampling_client(base_model="tiny")
    for params in [{"max_tokens": 5, "seed": 3}, {"max_tokens": 5, "seed": 3, "top_k": 4, "temperature": 0.7},
                   {"max_tokens": 5, "seed": 3, "top_p": 0.5}, {"max_tokens": 20, "seed": 3, "stop": list(range(128))},
                   {"max_tokens": 3, "seed": 3, "stop": ["never seen"]}]:
        sampler.sample(prompt(), num_samples=2, sampling_params=types.SamplingParams(**params)).result()
    sampler.sample(prompt(), num_samples=1, sampling_params=types.SamplingParams(**GREEDY), include_prompt_logprobs=True,
                   topk_prompt_logprobs=3).result()


def part_rest(service):
    rest = service.create_rest_client()  # first, because SDK 0.38 hangs here while a model is being created
    client = model(service, user_metadata={"renderer_name": "plain"})
    first = client.save_state("first").result().path
    client.save_weights_for_sampler("second").result()
    run = client.get_info().model_id
    rest.get_training_run(run).result()
    rest.get_training_run_by_tinker_path(first).result()
    rest.list_training_runs(limit=5).result()
    rest.list_checkpoints(run).result()
    rest.list_user_checkpoints(limit=5).result()
    rest.get_weights_info_by_tinker_path(first).result()
    rest.publish_checkpoint_from_tinker_path(first).result()
    rest.unpublish_checkpoint_from_tinker_path(first).result()
    if hasattr(rest, "set_checkpoint_ttl_from_tinker_path"):
        rest.set_checkpoint_ttl_from_tinker_path(first, 3600).result()
    if tinker.__version__ > "0.2":  # older SDKs cannot parse the answer of an archive
        rest.get_checkpoint_archive_url_from_tinker_path(first).result()
    rest.list_sessions().result()
    rest.get_session(run.split(":")[0]).result()
    rest.delete_checkpoint_from_tinker_path(first).result()
    rest.list_checkpoints(run).result()
    service.get_server_capabilities()


def part_failures(service):
    rest = service.create_rest_client()
    failing(lambda: service.create_lora_training_client(base_model="nobody's", rank=4).get_info())
    failing(lambda: service.create_sampling_client(model_path="tinker://nobody:train:0/sampler_weights/x").compute_logprobs(prompt()).result())
    client = model(service)
    failing(lambda: client.forward_backward([datum(advantages=[1.0] * 17)], "importance_sampling").result())
    failing(lambda: client.load_state("tinker://nobody:train:0/weights/x").result())
    client.save_state("taken").result()
    failing(lambda: client.save_state("taken").result())
    failing(lambda: rest.get_training_run("nobody:train:0").result())
    failing(lambda: rest.delete_checkpoint("nobody:train:0", "weights/x").result())
    sampler = service.create_sampling_client(base_model="tiny")
    failing(lambda: sampler.sample(prompt("x" * 300), num_samples=1, sampling_params=types.SamplingParams(**GREEDY)).result())
    client.forward_backward([datum()], "cross_entropy").result()
    failing(lambda: client.forward_backward([datum()], "hinge").result())


PARTS = {name[5:]: part for name, part in globals().items() if name.startswith("part_")}

if __name__ == "__main__":
    url, key, part = sys.argv[1:]
    PARTS[part](tinker.ServiceClient(base_url=url, api_key=key))
    print(f"tinker {tinker.__version__}: {part} is done")
