"""Compares with TuFT 0.2.2: the same requests, TuFT's answers (with the dummy models of TUFT_CPU_TEST=1), and ours. A
row says `same`, or why ours differs: a defect of TuFT that we do not repeat (D1, D12, ... as below), or a form that
the SDK accepts equally.

TUFT_OTHER_URL, TUFT_OTHER_KEY and TUFT_OTHER_SECOND_KEY (of another user) name a running TuFT. Then the requests go to
it, and its column is compared."""
import dataclasses
import itertools
import os
import typing

import numpy as np
import pytest

from raw_client import RawClient, forward_backward, pb
from tuft_server import ALICE, BOB, MODEL

OTHER = os.environ.get("TUFT_OTHER_URL")

# The reasons for differences.
DEFECTS = {
    "D1": "lookups that fail are plain-text 500, which the SDK retries for minutes",
    "D2": "capabilities and telemetry need no key",
    "D3": "auth/token issues a token that nothing accepts",
    "D5": "sessions of others are accepted",
    "D6": "a request for another user's future destroys it",
    "D7": "checkpoint names are paths",
    "D8": "the two kinds of checkpoints share a directory for each name",
    "D9": "unpublish deletes the checkpoint",
    "D10": "an archive is a directory of the server",
    "D11": "ttl and overwrite are missing",
    "D12": "a failed operation does not use up its number",
    "D13": "a repeated submission is done twice or refused",
    "D14": "409 for errors that a retry does not cure",
    "D24": "sampling parameters and prompts are not checked",
    "D27": "models are made inside the request",
    "D28": "ranks are not checked",
    "D31": "a constant architecture; samplers show server paths",
}
FORMS = {
    "200": "submissions and creations answer 200, TuFT 201 and 202: the SDK accepts any 2xx",
    "lenient": "unknown fields that change no result of training are ignored, for newer SDKs",
    "400": "requests that cannot be served get 400 here; the SDK raises 400, 404 and 422 alike",
    "strict": "a text is not accepted as a number",
    "config": "we buffer early sequence numbers, so chunks may arrive at once",
    "dynamic": "TuFT has no dynamic configuration",
    "hidden": "other users' objects look as if they did not exist",
    "redirect": "we return the URL in JSON, TuFT redirects",
    "kinds": "a checkpoint is named by its kind and name",
    "future": "the submission fails at once and TuFT's later, or the other way round",
    "key first": "without a key the body is not read; TuFT refuses broken JSON first",
    "no redirect": "a trailing slash is another path",
}


@dataclasses.dataclass
class Row:
    """`tuft` and `ours` are statuses, or FAILED if the submission is accepted and its future fails."""
    name: str
    call: typing.Callable
    tuft: object
    ours: object
    why: str = "same"
    keys: tuple = ()  # keys that our answer must have, by TuFT's names


FAILED = "failed"


class World:
    """A user with a session, a trained run and both kinds of checkpoints, and another user."""

    def __init__(self, url, key, other_key, model):
        self.raw, self.other, self.base, self.url = RawClient(url, key), RawClient(url, other_key), model, url
        self.nobody = RawClient(url, None)
        self.session = self.raw.session()
        self.model = self.made()
        self.numbers, self.model_numbers = itertools.count(1), itertools.count(1000)
        self.raw.result(self.raw.train(self.model, next(self.numbers)), protobuf=True)
        self.raw.result(self.raw.optim(self.model, next(self.numbers)))
        for kind, name in (("save_weights", "state"), ("save_weights_for_sampler", "weights")):
            assert self.raw.result(self.save(kind, name)).status == 200
        self.sampler = self.raw.sampler(self.session, base_model=self.base).json["sampling_session_id"]

    def made(self):
        return self.raw.model(self.base, self.session, rank=4)

    def save(self, kind, name, model=None, seq_id=None, **more):
        return self.raw.post(kind, {"model_id": model or self.model, "path": name,
                                    "seq_id": seq_id or next(self.numbers), "type": kind, **more})

    def checkpoint(self, reference, method="GET", end="", client=None, body=None):
        return (client or self.raw).request(method, f"/api/v1/training_runs/{self.model}/checkpoints/{reference}{end}", body,
                                            {"Content-Type": "application/json"})

    def create(self, rank=4, **more):
        return self.raw.post("create_model", {"session_id": self.session, "model_seq_id": next(self.model_numbers),
                                              "base_model": self.base, "lora_config": {"rank": rank}, **more})


def session_body(**more):
    return {"tags": [], "user_metadata": {}, "sdk_version": "0.25.0", **more}


def twice(world, call):
    first, second = call(), call()
    return world.raw.result(first, protobuf=True) and second


CHECKPOINT_KEYS = ("checkpoint_id", "checkpoint_type", "time", "tinker_path", "size_bytes", "public")
RUN_KEYS = ("training_run_id", "base_model", "model_owner", "is_lora", "corrupted", "lora_rank", "last_request_time")

ROWS = [
    # 2.1 common
    Row("no key", lambda w: w.nobody.get("sessions"), 401, 401, keys=("detail",)),
    Row("a wrong key", lambda w: RawClient(w.url, "tml-wrong").get("sessions"), 403, 403),
    Row("a bearer is no key here", lambda w: w.nobody.get("sessions", headers={"Authorization": "Bearer " + ALICE}), 401, 401),
    Row("the key comes before the body", lambda w: w.nobody.post("create_session", "{"), 422, 401, "key first"),
    Row("broken JSON", lambda w: w.raw.post("create_session", "{"), 422, 422),
    Row("a field of the wrong kind", lambda w: w.raw.post("create_session", session_body(tags=3)), 422, 422, keys=("detail",)),
    Row("an unknown field", lambda w: w.raw.post("create_session", session_body(more=1)), 422, 200, "lenient"),
    Row("an unknown path", lambda w: w.raw.get("nothing"), 404, 404, keys=("detail",)),
    Row("a wrong method", lambda w: w.raw.get("create_session"), 405, 405, keys=("detail",)),
    Row("a trailing slash", lambda w: w.raw.get("sessions/"), 307, 404, "no redirect"),
    # 2.2 service
    Row("healthz needs no key", lambda w: w.nobody.get("healthz"), 200, 200, keys=("status",)),
    Row("capabilities", lambda w: w.raw.get("get_server_capabilities"), 200, 200, keys=("supported_models",)),
    Row("capabilities without a key", lambda w: w.nobody.get("get_server_capabilities"), 200, 401, "D2"),
    Row("telemetry without a key", lambda w: w.nobody.post("telemetry", {}), 422, 401, "D2"),
    Row("create_session", lambda w: w.raw.post("create_session", session_body()), 201, 200, "200", ("type", "session_id")),
    Row("a heartbeat", lambda w: w.raw.post("session_heartbeat", {"session_id": w.session}), 200, 200, keys=("type",)),
    Row("a heartbeat of nobody", lambda w: w.raw.post("session_heartbeat", {"session_id": "nobody"}), 500, 404, "D1"),
    Row("a heartbeat of another's session", lambda w: w.other.post("session_heartbeat", {"session_id": w.session}), 500, 404, "D1"),
    Row("sessions", lambda w: w.raw.get("sessions"), 200, 200, keys=("sessions",)),
    Row("no sessions at all a page", lambda w: w.raw.get("sessions?limit=0"), 422, 422),
    Row("500 sessions a page", lambda w: w.raw.get("sessions?limit=500"), 200, 200),
    Row("501 sessions a page", lambda w: w.raw.get("sessions?limit=501"), 422, 422),
    Row("from before the first", lambda w: w.raw.get("sessions?offset=-1"), 422, 422),
    Row("from after the last", lambda w: w.raw.get("sessions?offset=100000"), 200, 200, keys=("sessions",)),
    Row("a session", lambda w: w.raw.get("sessions/" + w.session), 200, 200, keys=("training_run_ids", "sampler_ids")),
    Row("another's session", lambda w: w.other.get("sessions/" + w.session), 500, 404, "D1"),
    Row("a token", lambda w: w.raw.post("auth/token", {}), 200, 400, "D3"),
    Row("client/config", lambda w: w.raw.post("client/config", {"sdk_version": "0.25.0"}), 200, 200, keys=(
        "pjwt_auth_enabled", "credential_default_source", "parallel_fwdbwd_chunks", "fwdbwd_max_chunk_len")),
    Row("client/dynamic_config", lambda w: w.raw.post("client/dynamic_config", {"sdk_version": "0.25.0"}), 404, 200, "dynamic"),
    # 2.3 models and training
    Row("create_model", lambda w: w.create(), 202, 200, "200", ("request_id", "model_id")),
    Row("a model of no base", lambda w: w.create(base_model="nobody's"), 404, 404),
    Row("a model in another's session", lambda w: in_foreign_session(w), 200, 404, "D5"),
    Row("a model in no session", lambda w: w.create(session_id="nobody"), 404, 404),
    Row("a rank that is not a number", lambda w: w.create(rank="4"), 202, 422, "strict"),
    Row("rank 0", lambda w: w.create(rank=0), 202, 422, "D28"),
    Row("a model without lora_config", lambda w: w.create(lora_config=None), 400, 200, "lenient"),
    Row("the same create_model again", lambda w: twice(w, lambda: w.raw.post("create_model", {
        "session_id": w.session, "model_seq_id": 5000, "base_model": w.base, "lora_config": {"rank": 4}})), 202, 200, "D13"),
    Row("get_info", lambda w: w.raw.post("get_info", {"model_id": w.model}), 200, 200,
        keys=("model_data", "model_id", "is_lora", "lora_rank", "model_name")),
    Row("get_info of nobody", lambda w: w.raw.post("get_info", {"model_id": "nobody"}), 500, 404, "D1"),
    Row("get_info of another's", lambda w: w.other.post("get_info", {"model_id": w.model}), 500, 404, "D1"),
    Row("unload of nobody", lambda w: w.raw.post("unload_model", {"model_id": "nobody"}), 404, 404),
    Row("unload of another's", lambda w: w.other.post("unload_model", {"model_id": w.model}), 403, 404, "hidden"),
    Row("a pass that is not protobuf", lambda w: w.raw.request("POST", "/api/v1/forward_backward", "x", {"Content-Type": "text/plain"}),
        415, 415),
    Row("a pass that cannot be read", lambda w: w.raw.post_protobuf("forward_backward", b"\xff\xff"), 422, 400, "400"),
    Row("a pass of nobody's model", lambda w: w.raw.train("nobody", 1), FAILED, 404, "future"),
    Row("a pass with another's model", lambda w: w.other.train(w.model, 1), FAILED, 404, "future"),
    Row("a pass in an unknown loss", lambda w: unknown_loss(w), 422, FAILED, "future"),
    Row("the same pass again", lambda w: repeated_pass(w), FAILED, 200, "D13"),
    Row("a number that comes early", lambda w: early_pass(w), FAILED, 200, "config"),
    Row("an operation after one that failed", lambda w: after_failure(w), FAILED, 200, "D12"),
    Row("optim_step with its defaults", lambda w: w.raw.post("optim_step", {"adam_params": {}, "model_id": w.made(), "seq_id": 1}),
        202, 200, "200", ("request_id", "model_id")),
    Row("a taken name", lambda w: w.save("save_weights", "state"), 202, FAILED, "D11"),
    Row("a taken name, to be replaced", lambda w: w.save("save_weights", "state", overwrite=True), 202, 200, "D11"),
    Row("a name of both kinds", lambda w: w.save("save_weights_for_sampler", "state"), 202, 200, "D8"),
    Row("a name that goes up", lambda w: w.save("save_weights", "../up"), 202, FAILED, "D7"),
    Row("a load of no checkpoint", lambda w: w.raw.post("load_weights", {
        "model_id": w.model, "seq_id": next(w.numbers), "path": f"tinker://{w.model}/weights/none", "optimizer": False}),
        FAILED, FAILED),
    # 2.4 sampling, lists, checkpoints
    Row("a sampler of the base", lambda w: w.raw.sampler(w.session, base_model=w.base), 201, 200, "200",
        ("type", "sampling_session_id")),
    Row("a sampler of nothing", lambda w: w.raw.sampler(w.session), 404, 400, "400"),
    Row("a sampler of no path", lambda w: w.raw.sampler(w.session, model_path="nonsense"), 500, 400, "D1"),
    Row("a sampler of no checkpoint", lambda w: w.raw.sampler(w.session, model_path=f"tinker://{w.model}/sampler_weights/none"), 404, 404),
    Row("a sampler of another's checkpoint", lambda w: w.other.sampler(
        model_path=f"tinker://{w.model}/sampler_weights/weights"), 403, 404, "hidden"),
    Row("the path goes before the base", lambda w: w.raw.sampler(
        w.session, model_path=f"tinker://{w.model}/sampler_weights/weights", base_model=w.base), 201, 200, "200"),
    Row("what a sampler is", lambda w: w.raw.get("samplers/" + w.sampler), 200, 200, keys=("sampler_id", "base_model", "model_path")),
    Row("what nobody is", lambda w: w.raw.get("samplers/nobody"), 500, 404, "D1"),
    Row("asample", lambda w: w.raw.sample(w.sampler, 1), 202, 200, "200", ("request_id", "model_id")),
    Row("samples out of order", lambda w: w.raw.sample(w.sampler, 0), 202, 200, "200"),
    Row("no samples", lambda w: w.raw.sample(w.sampler, 10, num_samples=0), 202, 400, "D24"),
    Row("a temperature below 0", lambda w: w.raw.sample(w.sampler, 11, temperature=-1), 202, 400, "D24"),
    Row("a prompt that is too long", lambda w: w.raw.sample(w.sampler, 12, tokens=[1] * 100_000), 202, 400, "D24"),
    Row("the future of nobody", lambda w: w.raw.retrieve("nobody"), 404, 404),
    Row("the future of another", lambda w: w.other.retrieve(w.raw.sample(w.sampler, 13).json["request_id"]), 403, 404, "D6"),
    Row("training runs", lambda w: w.raw.get("training_runs"), 200, 200, keys=("training_runs", "cursor")),
    Row("501 runs a page", lambda w: w.raw.get("training_runs?limit=501"), 422, 422),
    Row("a training run", lambda w: w.raw.get("training_runs/" + w.model), 200, 200, keys=RUN_KEYS),
    Row("another's training run", lambda w: w.other.get("training_runs/" + w.model), 500, 404, "D1"),
    Row("checkpoints of a run", lambda w: w.raw.get(f"training_runs/{w.model}/checkpoints"), 200, 200, keys=("checkpoints",)),
    Row("checkpoints of a user", lambda w: w.raw.get("checkpoints"), 200, 200, keys=("checkpoints", "cursor")),
    Row("1000 checkpoints a page", lambda w: w.raw.get("checkpoints?limit=1000"), 200, 200),
    Row("1001 checkpoints a page", lambda w: w.raw.get("checkpoints?limit=1001"), 422, 422),
    Row("publish", lambda w: w.checkpoint("weights/state", "POST", "/publish"), 204, 204),
    Row("publish again", lambda w: w.checkpoint("weights/state", "POST", "/publish"), 204, 204),
    Row("unpublish", lambda w: w.checkpoint("weights/state", "DELETE", "/publish"), 500, 204, "D9"),
    Row("publish another's", lambda w: w.checkpoint("weights/state", "POST", "/publish", w.other), 500, 404, "D1"),
    Row("a time to live", lambda w: w.checkpoint("weights/state", "PUT", "/ttl", body='{"ttl_seconds": 60}'), 405, 204, "D11"),
    Row("an archive", lambda w: w.checkpoint("weights/state", end="/archive"), 302, 200, "D10", ("url", "expires")),
    Row("a checkpoint of no kind", lambda w: w.checkpoint("foo/state", "DELETE"), 400, 400),
    Row("a checkpoint by its bare name", lambda w: w.checkpoint("none", "DELETE"), 500, 404, "D1"),
    Row("weights_info", lambda w: w.raw.post("weights_info", {"tinker_path": f"tinker://{w.model}/weights/state"}), 200, 200,
        keys=("base_model", "is_lora", "lora_rank", "train_unembed", "train_mlp", "train_attn")),
    Row("weights_info of another's", lambda w: w.other.post("weights_info", {"tinker_path": f"tinker://{w.model}/weights/state"}),
        500, 404, "D1"),
    Row("delete", lambda w: w.checkpoint("weights/state", "DELETE"), 204, 204),
    Row("delete again", lambda w: w.checkpoint("weights/state", "DELETE"), 204, 404, "D8"),
    Row("models of the OpenAI API", lambda w: w.raw.request("GET", "/oai/api/v1/models"), 200, 200, keys=("object", "data")),
]


def in_foreign_session(world):
    submitted = world.other.post("create_model", {"session_id": world.session, "model_seq_id": 1, "base_model": world.base,
                                                  "lora_config": {"rank": 4}})
    return world.other.result(submitted) if submitted.status in (200, 202) else submitted


def unknown_loss(world):
    model = world.made()
    return world.raw.train(model, 1, forward_backward(model, 1, loss="hinge"))


def repeated_pass(world):
    model = world.made()
    return twice(world, lambda: world.raw.train(model, 1))


def early_pass(world):
    model = world.made()
    second = world.raw.train(model, 2)
    assert second.status in (200, 202)
    world.raw.train(model, 1)
    return second


def after_failure(world):
    model = world.made()
    world.raw.train(model, 1, forward_backward(model, 1, loss="hinge"))
    return world.raw.train(model, 2)


def outcome(world, answer):
    """Returns the status, or FAILED if the submission is accepted and its future fails."""
    submitted = answer.status in (200, 202) and "json" in answer.headers["Content-Type"] and "request_id" in answer.json
    if not submitted:
        return answer.status
    result = world.raw.result(answer, protobuf=True)
    if result.status >= 400 or ("json" in result.headers["Content-Type"] and "error" in result.json):
        return FAILED
    return answer.status


@pytest.fixture(scope="module")
def world(request):
    if OTHER:
        key = os.environ["TUFT_OTHER_KEY"]
        return World(OTHER, key, os.environ.get("TUFT_OTHER_SECOND_KEY", key), os.environ.get("TUFT_OTHER_MODEL", MODEL))
    return World(request.getfixturevalue("server").url, ALICE, BOB, MODEL)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_of_the_table(row, world):
    for client in (world.raw, world.other, world.nobody):
        client.connection.close()  # a server may close a connection whose request it has refused
    answer = row.call(world)
    assert outcome(world, answer) == (row.tuft if OTHER else row.ours), answer
    if not OTHER:
        assert answer.status == 204 or answer.headers["Content-Type"].startswith("application/json"), answer.headers
        assert set(row.keys) <= set(answer.json if row.keys else ()), answer


# ---- values

def test_each_difference_has_its_reason():
    for row in ROWS:
        assert (row.why == "same") == (row.tuft == row.ours), row.name
        assert row.why == "same" or row.why in {**DEFECTS, **FORMS}, row.name


only_ours = pytest.mark.skipif(OTHER is not None, reason="the values of our own server")


@only_ours
def test_the_clients_configuration(raw):
    """TuFT's values are the SDK's defaults. Ours are the same except for additional features."""
    got = raw.post("client/config", {"sdk_version": "0.25.0"}).json
    tuft = {"pjwt_auth_enabled": False, "credential_default_source": "api_key", "fwdbwd_max_chunk_len": 1024,
            "fwdbwd_max_chunk_bytes_count": 5_000_000, "sample_no_retries": False, "sample_max_concurrent_requests": 2000,
            "use_pyqwest_transport": True}
    assert {key: got[key] for key in tuft} == tuft
    # Only implemented features are announced: chunks in any order, zstd, models by loading, polls for many samples, custom
    # losses on the server.
    assert got["parallel_fwdbwd_chunks"] and got["proto_compress_fwdbwd"] and got["create_model_via_load_weights"]
    assert got["sample_use_retrieve_futures"] and got["sample_join_sampling_session"] and got["custom_loss_server_side"]
    assert not {"grpc_target", "enable_grpc_retrieve_future"} & set(got)


@only_ours
def test_orders_of_lists(raw):
    session, models = raw.session(), []
    for _ in range(2):
        models.append(raw.model(MODEL, session, rank=4))
    for seq_id, name in enumerate(["b", "a"], 1):
        assert raw.result(raw.post("save_weights", {"model_id": models[0], "path": name, "seq_id": seq_id})).status == 200
    assert raw.result(raw.train(models[0], 3), protobuf=True).status == 200
    assert raw.get("sessions/" + session).json["training_run_ids"] == models  # in the order of creation
    runs = [run["training_run_id"] for run in raw.get("training_runs?limit=500").json["training_runs"]]
    assert runs.index(models[0]) < runs.index(models[1])  # most recently used first
    names = [one["checkpoint_id"] for one in raw.get(f"training_runs/{models[0]}/checkpoints").json["checkpoints"]]
    assert names == ["weights/b", "weights/a"]  # of a run: oldest first
    listed = raw.get("checkpoints?limit=2").json
    assert [one["checkpoint_id"] for one in listed["checkpoints"]] == ["weights/a", "weights/b"]  # of a user: newest first
    assert listed["cursor"]["limit"] == 2 and listed["cursor"]["offset"] == 0
    run = raw.get("training_runs/" + models[0]).json
    assert set(RUN_KEYS) <= set(run) and set(CHECKPOINT_KEYS) <= set(run["last_checkpoint"])
    assert run["last_checkpoint"]["checkpoint_id"] == "weights/a"


@only_ours
def test_a_sample_in_both_forms(raw):
    sampler = raw.sampler(base_model=MODEL).json["sampling_session_id"]
    submitted = raw.post("asample", {
        "sampling_session_id": sampler, "seq_id": 1, "num_samples": 1, "sampling_params": {"max_tokens": 3, "seed": 1},
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": [5, 6, 7]}]}, "prompt_logprobs": True, "topk_prompt_logprobs": 2})
    as_json, as_protobuf = raw.result(submitted).json, pb.SampleResponse.FromString(raw.result(submitted, protobuf=True).body)
    assert as_json["type"] == "sample" and as_json["sequences"][0]["stop_reason"] in ("length", "stop")
    tokens = as_json["sequences"][0]["tokens"]
    assert np.frombuffer(as_protobuf.sequences[0].tokens, np.int32).tolist() == tokens
    np.testing.assert_allclose(np.frombuffer(as_protobuf.sequences[0].logprobs, np.float32),
                               as_json["sequences"][0]["logprobs"], rtol=1e-5)
    scored = np.frombuffer(as_protobuf.prompt_logprobs, np.float32)
    assert as_json["prompt_logprobs"][0] is None and np.isnan(scored[0])
    np.testing.assert_allclose(scored[1:], as_json["prompt_logprobs"][1:], rtol=1e-5)
    topk = as_protobuf.topk_prompt_logprobs
    assert (topk.k, topk.prompt_length) == (2, 3) and as_json["topk_prompt_logprobs"][0] is None
    assert [[len(pair) for pair in row] for row in as_json["topk_prompt_logprobs"][1:]] == [[2, 2], [2, 2]]
    assert np.frombuffer(topk.token_ids, np.int32)[2:].tolist() == [pair[0] for row in as_json["topk_prompt_logprobs"][1:] for pair in row]


@only_ours
@pytest.mark.parametrize("loss, distances, advantages, config, per_token", [
    # TuFT's test vectors give lp and lq. The loss depends on lp, which the model computes, and on their difference, so
    # the vectors' differences and advantages are used.
    ("importance_sampling", [.1, .1, -.25], [1, -1, .5], {}, lambda lp, r, a: -r * a),
    ("ppo", [-.1, -.1, -.2], [1, -1, .5], {"clip_low_threshold": .8, "clip_high_threshold": 1.2},
     lambda lp, r, a: -np.minimum(r * a, np.clip(r, .8, 1.2) * a)),
    ("ppo", [-.1, -.3, .4], [1, -1, .5], {}, lambda lp, r, a: -np.minimum(r * a, np.clip(r, .8, 1.2) * a)),
    ("cispo", [-.1, -.1, -.1], [1, -1, .5], {"clip_low_threshold": .85, "clip_high_threshold": 1.15},
     lambda lp, r, a: -np.clip(r, .85, 1.15) * lp * a),
    ("cispo", [-.1, -.3, .4], [1, -1, .5], {}, lambda lp, r, a: -np.clip(r, 0, 4) * lp * a),
    ("dro", [-.2, -.2, -.1], [1, -1, .5], {"beta": .05}, lambda lp, r, a: -(lp * a - .025 * np.log(r) ** 2)),
    ("dro", [-.2, -.2, -.1], [1, -1, .5], {}, lambda lp, r, a: -(lp * a - .005 * np.log(r) ** 2)),
])
def test_losses_with_tufts_vectors_and_defaults(raw, loss, distances, advantages, config, per_token):
    model = raw.model(MODEL, rank=4)
    request = {"tokens": (1, 2, 3), "targets": (2, 3, 4)}

    def outputs(answer):
        assert answer.status == 200, answer
        message = pb.ForwardBackwardOutput.FromString(answer.body)
        return message, np.frombuffer(message.loss_fn_outputs[0].fields["logprobs"].data, np.float32).astype(np.float64)

    _, logprobs = outputs(raw.result(raw.train(model, 1, forward_backward(model, 1, forward_only=True, **request)), protobuf=True))
    message = forward_backward(model, 2, loss=loss, logprobs=(logprobs - distances).tolist(), advantages=advantages, **request)
    for name, value in config.items():
        message.loss_fn_config[name] = value
    got, _ = outputs(raw.result(raw.train(model, 2, message), protobuf=True))
    expected = per_token(logprobs, np.exp(distances), np.array(advantages)).sum()
    assert dict(got.metrics)["loss:sum"] == pytest.approx(expected, rel=1e-3, abs=1e-4)
    if loss == "importance_sampling":
        assert expected == pytest.approx(-0.38940039, rel=1e-6)
    if loss == "ppo" and config:
        assert expected == pytest.approx(-0.4093653, rel=1e-6)
