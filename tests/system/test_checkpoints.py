"""Tests an owner's operations on checkpoints through the unmodified SDK: keep, share, expire, delete, download."""
import io
import json
import pathlib
import tarfile
import urllib.error
import urllib.request

import pytest
import tinker
from tinker import types

from conftest import service_client
from examples_of_data import datum, prompt
from raw_client import RawClient
from tuft_server import ALICE, BOB, MODEL, TuftServer, configuration, wait_until

ADAM = types.AdamParams(learning_rate=5e-3)
TEXT = "checkpoints have a life"
GREEDY = types.SamplingParams(max_tokens=4, temperature=0.0)


@pytest.fixture
def rest(alice):
    return alice.create_rest_client()


@pytest.fixture
def trained(alice):
    client = alice.create_lora_training_client(base_model=MODEL, rank=8, seed=3)
    client.forward_backward([datum(TEXT)], "cross_entropy").result()
    client.optim_step(ADAM).result()
    return client


def loss_of(client):
    return client.forward([datum(TEXT)], "cross_entropy").result().metrics["loss:sum"]


def paths_of(rest, client):
    listed = rest.list_checkpoints(client.get_info().model_id).result()
    return [checkpoint.tinker_path for checkpoint in listed.checkpoints]


def directories(server, kind):
    return sorted(str(found) for found in (server.home / "checkpoints").glob(f"*/{kind}/*"))


def test_a_ttl_ends_a_checkpoint(server, trained, rest):
    short = trained.save_state("short", ttl_seconds=1).result().path
    kept = trained.save_state("kept").result().path
    wait_until(lambda: paths_of(rest, trained) == [kept], 30, "the expired checkpoint is gone")
    with pytest.raises(tinker.RequestFailedError, match="does not exist"):
        trained.load_state(short).result()
    wait_until(lambda: not any(name.endswith("/short") for name in directories(server, "weights")), 30, "its files go")


def test_metadata_of_a_checkpoint_is_listed_and_replaced_by_an_overwriting_save(server, trained):
    raw = RawClient(server.url, ALICE)
    run = trained.get_info().model_id

    def save(seq, metadata, route="save_weights", **more):
        body = {"model_id": run, "path": "noted", "seq_id": seq, "user_metadata": metadata, "type": route, **more}
        return raw.post(route, body)

    def listed():
        checkpoints = raw.get(f"training_runs/{run}/checkpoints").json["checkpoints"]
        return {each["checkpoint_id"]: each["user_metadata"] for each in checkpoints}

    assert "path" in raw.result(save(3, {"note": "first"})).json
    assert "path" in raw.result(save(4, {"for": "s"}, "save_weights_for_sampler", kind="snapshot")).json
    assert listed() == {"weights/noted": {"note": "first"}, "sampler_weights/noted": {"for": "s"}}
    assert "path" in raw.result(save(5, {"step": "2"}, overwrite=True)).json
    assert listed()["weights/noted"] == {"step": "2"}
    assert "path" in raw.result(save(6, None, overwrite=True)).json
    assert listed()["weights/noted"] is None
    refused = save(7, {"a": "b"}, overwite=True)
    assert refused.status == 400 and "overwite" in refused.detail, refused
    long = raw.result(save(8, {"a": "x" * 10_000}))
    assert "8192" in long.json["error"] and long.json["category"] == "user", long


def test_a_copy_is_a_run_of_its_own_and_repeats_with_its_key(server, alice, bob, trained, rest):
    raw, raw_bob = RawClient(server.url, ALICE), RawClient(server.url, BOB)
    source = trained.save_state("original").result().path
    expected = loss_of(trained)

    def copy(client, path, key, **headers):
        return client.post("copy_weights", {"source_path": path, "ttl_seconds": 7200},
                           {"X-Idempotency-Key": key, **headers})

    made = copy(raw, source, "once").json["tinker_path"]
    assert made != source and copy(raw, source, "once").json["tinker_path"] == made
    loaded = alice.create_training_client_from_state_with_optimizer(made)
    assert loss_of(loaded) == pytest.approx(expected, rel=1e-6)
    hidden, unknown = copy(raw_bob, source, "x"), copy(raw_bob, source + "-none", "x")
    assert (hidden.status, unknown.status) == (404, 404)
    assert hidden.detail == unknown.detail.replace(source + "-none", source)
    opened = copy(raw_bob, source, "x", **{"X-Tinker-Weights-Access-Token": ALICE})
    assert opened.status == 200, opened
    rest.publish_checkpoint_from_tinker_path(source).result()
    public = copy(raw_bob, source, "y").json["tinker_path"]
    rest.delete_checkpoint_from_tinker_path(source).result()
    copied = bob.create_training_client_from_state(public)
    assert loss_of(copied) == pytest.approx(expected, rel=1e-6)
    assert raw.get(f"training_runs/{public.split('/')[2]}").status == 404


def test_a_ttl_that_is_set_later_and_taken_away(trained, rest):
    path = trained.save_state("later").result().path
    rest.set_checkpoint_ttl_from_tinker_path(path, 3600).result()
    listed = rest.list_checkpoints(trained.get_info().model_id).result().checkpoints
    assert listed[0].expires_at is not None
    rest.set_checkpoint_ttl_from_tinker_path(path, None).result()
    assert rest.list_checkpoints(trained.get_info().model_id).result().checkpoints[0].expires_at is None


def test_another_user_loads_what_is_published(server, trained, rest, bob):
    path = trained.save_state("shared").result().path
    expected = loss_of(trained)
    with pytest.raises(tinker.APIStatusError):
        bob.create_training_client_from_state(path)
    rest.publish_checkpoint_from_tinker_path(path).result()
    theirs = service_client(server, BOB).create_training_client_from_state(path)
    assert loss_of(theirs) == pytest.approx(expected, rel=1e-4)
    rest.unpublish_checkpoint_from_tinker_path(path).result()
    with pytest.raises(tinker.APIStatusError):
        service_client(server, BOB).create_training_client_from_state(path)


def test_the_key_of_the_owner_opens_a_private_checkpoint(server, trained):
    path = trained.save_state("private").result().path
    theirs = service_client(server, BOB).create_training_client_from_state(path, weights_access_token=ALICE)
    assert loss_of(theirs) == pytest.approx(loss_of(trained), rel=1e-4)


def test_a_sampler_keeps_its_snapshot_when_the_checkpoint_is_deleted(alice, trained, rest):
    path = trained.save_weights_for_sampler("live").result().path
    sampler = alice.create_sampling_client(model_path=path)
    before = sampler.sample(prompt(TEXT[:6]), num_samples=1, sampling_params=GREEDY).result().sequences[0].tokens
    rest.delete_checkpoint_from_tinker_path(path).result()
    after = sampler.sample(prompt(TEXT[:6]), num_samples=1, sampling_params=GREEDY).result().sequences[0].tokens
    assert after == before
    with pytest.raises(tinker.APIStatusError):
        alice.create_sampling_client(model_path=path)


def test_deleting_frees_the_disk(server, trained, rest):
    first = trained.save_state("first").result().path
    trained.save_state("second").result()
    rest.delete_checkpoint_from_tinker_path(first).result()
    run = trained.get_info().model_id.replace(":", "_")
    weights = server.home / "checkpoints" / run / "weights"
    wait_until(lambda: [found.name for found in weights.iterdir()] == ["second"], 30, "its files are removed")


def test_a_model_is_made_by_loading(alice, trained):
    """One request (create_model_via_load_weights) with the checkpoint's own LoRA configuration."""
    path = trained.save_state("origin").result().path
    model = alice.create_training_client_from_state_with_optimizer(path, user_metadata={"from": "origin"})
    assert alice.holder._client_config.create_model_via_load_weights
    info = model.get_info()
    assert info.lora_rank == 8
    assert loss_of(model) == pytest.approx(loss_of(trained), rel=1e-4)
    model.forward_backward([datum(TEXT)], "cross_entropy").result()
    assert model.optim_step(ADAM).result().metrics["optimizer_step"] == 2  # the optimizer continued
    fresh = alice.create_training_client_from_state(path)
    fresh.forward_backward([datum(TEXT)], "cross_entropy").result()
    assert fresh.optim_step(ADAM).result().metrics["optimizer_step"] == 1


def test_optimizer_state_that_is_not_there_is_an_error(trained):
    path = trained.save_weights_for_sampler("no-moments").result().path
    with pytest.raises(tinker.RequestFailedError, match="no optimizer state"):
        trained.load_state_with_optimizer(path).result()
    trained.load_state(path).result()


def test_a_checkpoint_of_another_shape_is_refused_with_both_values(alice, trained):
    path = trained.save_state("eight").result().path
    other = alice.create_lora_training_client(base_model=MODEL, rank=4, seed=1)
    with pytest.raises(tinker.RequestFailedError, match="lora rank is 8, the model's is 4"):
        other.load_state(path).result()


def test_a_torn_checkpoint_is_refused_with_the_reason(server, trained):
    path = trained.save_state("torn").result().path
    server.expected_errors += ["torn", "client."]  # the SDK reports the exception that it raised
    run = trained.get_info().model_id.replace(":", "_")
    file = server.home / "checkpoints" / run / "weights" / "torn" / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(tinker.RequestFailedError, match="torn"):
        trained.load_state(path).result()
    assert loss_of(trained) > 0


def extract(tar, directory):
    """Writes the regular files of an archive that has no directories. TarFile.extractall(filter=...) would be as safe,
    but Python has it only from 3.11.4 on, and Debian 12 has 3.11.2."""
    for member in tar.getmembers():
        assert member.isfile() and pathlib.PurePosixPath(member.name).name == member.name, member.name
        (directory / member.name).write_bytes(tar.extractfile(member).read())


def test_an_archive_is_downloaded_without_a_key(server, trained, rest, tmp_path):
    path = trained.save_state("away").result().path
    url = rest.get_checkpoint_archive_url_from_tinker_path(path).result().url
    with urllib.request.urlopen(url, timeout=30) as answer:
        body = answer.read()
        assert int(answer.headers["Content-Length"]) == len(body)
    run = trained.get_info().model_id.replace(":", "_")
    stored = server.home / "checkpoints" / run / "weights" / "away"
    with tarfile.open(fileobj=io.BytesIO(body)) as tar:
        extract(tar, tmp_path)
        assert sorted(tar.getnames()) == ["adapter_config.json", "adapter_model.safetensors", "checkpoint_complete"]
    for name in ("adapter_config.json", "adapter_model.safetensors", "checkpoint_complete"):
        assert (tmp_path / name).read_bytes() == (stored / name).read_bytes(), name
    assert json.loads((tmp_path / "adapter_config.json").read_text())["r"] == 8
    header = (tmp_path / "adapter_model.safetensors").read_bytes()
    tensors = json.loads(header[8:8 + int.from_bytes(header[:8], "little")])
    assert "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight" in tensors
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url[:-4] + "AAAA", timeout=30)
    assert refused.value.code == 403


def test_a_user_has_only_so_many_bytes(model_dir, tmp_path):
    config = configuration(model_dir, limits={"checkpoint_bytes_per_user_max": 1_000_000})
    with TuftServer(tmp_path, config) as server:
        client = service_client(server).create_lora_training_client(base_model=MODEL, rank=8, seed=1)
        rest = service_client(server).create_rest_client()
        saved = []
        with pytest.raises(tinker.RequestFailedError, match="checkpoint_bytes_per_user_max"):
            for number in range(1000):
                saved.append(client.save_state(f"s{number}").result().path)
        assert saved
        assert len(list(pathlib.Path(server.home, "checkpoints").glob("*/weights/*"))) == len(saved)
        rest.delete_checkpoint_from_tinker_path(saved[0]).result()
        client.save_state("again").result()
