"""Tests weights for download: save_weights_external, one address for each file, and their encryption with age. The
requests are those of SDK 0.38."""
import datetime
import json
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest
from safetensors.numpy import load as load_tensors
from tinker import types

from conftest import service_client
from examples_of_data import datum
from raw_client import RawClient
from tuft_server import ALICE, MODEL, TuftServer, configuration

# A test identity and its recipient; nothing real is encrypted with them.
IDENTITY = "AGE-SECRET-KEY-10EJNZZXEVFQZXM0WSCL8DDTSUUY5GUZC0WLGVDZQ8DJRHN0TE3XSZ3F6X0"
RECIPIENT = "age1pwgd5aztyfdygx9mnmxs9amp7uycfrj4k7tzsgwd5q8ccq3j0d4s6wy6mu"
PLAIN = {"adapter_config.json", "adapter_model.safetensors"}


@pytest.fixture(scope="module")
def trained(server):
    """A run with a step behind it, its id, and its next seq_id."""
    client = service_client(server, ALICE).create_lora_training_client(base_model=MODEL, rank=8, seed=3)
    client.forward_backward([datum("for download")], "cross_entropy").result()
    client.optim_step(types.AdamParams(learning_rate=5e-3)).result()
    return {"run": client.get_info().model_id, "seq": iter(range(3, 1000))}


def save(raw, trained, path, **more):
    body = {"model_id": trained["run"], "path": path, "seq_id": next(trained["seq"]), "type": "save_weights_external"}
    submitted = raw.post("save_weights_external", {**body, **more})
    return raw.result(submitted).json if submitted.status == 200 else submitted


def urls_of(raw, tinker_path):
    run, kind, name = tinker_path.removeprefix("tinker://").split("/")
    return raw.get(f"training_runs/{run}/checkpoints/{kind}/{name}/external_weights_urls")


def fetch(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        content = answer.read()
        assert int(answer.headers["Content-Length"]) == len(content)
        return content


def expected_tensors(server, raw, trained):
    saved = raw.result(raw.post("save_weights", {"model_id": trained["run"], "path": f"t{time.monotonic_ns()}",
                                                 "seq_id": next(trained["seq"])})).json["path"]
    run, kind, name = saved.removeprefix("tinker://").split("/")
    return load_tensors((server.home / "checkpoints" / run.replace(":", "_") / kind / name /
                         "adapter_model.safetensors").read_bytes())


def same(one, other):
    return one.keys() == other.keys() and all((one[name] == other[name]).all() for name in one)


def test_files_are_peft_and_fetched_without_a_key(server, raw, trained):
    saved = save(raw, trained, "final", ttl_seconds=3600)
    assert saved["path"] == f"tinker://{trained['run']}/external_weights/final" and saved["size_bytes"] > 0
    answer = urls_of(raw, saved["path"]).json
    assert set(answer["urls"]) == PLAIN
    expires = datetime.datetime.fromisoformat(answer["expires"])
    left = expires - datetime.datetime.now(datetime.timezone.utc)
    assert datetime.timedelta(minutes=5) < left <= datetime.timedelta(minutes=15)
    assert all(url.startswith(server.url) and ALICE not in url for url in answer["urls"].values())
    files = {name: fetch(url) for name, url in answer["urls"].items()}
    config = json.loads(files["adapter_config.json"])
    assert (config["peft_type"], config["r"]) == ("LORA", 8)
    assert same(load_tensors(files["adapter_model.safetensors"]), expected_tensors(server, raw, trained))
    changed = answer["urls"]["adapter_config.json"][:-1] + "_"
    with pytest.raises(urllib.error.HTTPError) as refused:
        fetch(changed)
    assert refused.value.code == 403


def test_files_for_recipients_are_age_files(server, raw, trained):
    pyrage = pytest.importorskip("pyrage")
    saved = save(raw, trained, "sealed", age_encryption_recipients=[RECIPIENT, RECIPIENT])
    urls = urls_of(raw, saved["path"]).json["urls"]
    assert set(urls) == {name + ".age" for name in PLAIN}
    identity = pyrage.x25519.Identity.from_str(IDENTITY)
    files = {name: pyrage.decrypt(fetch(url), [identity]) for name, url in urls.items()}
    assert json.loads(files["adapter_config.json.age"])["peft_type"] == "LORA"
    assert same(load_tensors(files["adapter_model.safetensors.age"]), expected_tensors(server, raw, trained))
    with pytest.raises(pyrage.DecryptError):
        pyrage.decrypt(fetch(urls["adapter_config.json.age"]), [pyrage.x25519.Identity.generate()])


def test_no_plain_file_is_left_of_an_encrypted_one(server, raw, trained):
    saved = save(raw, trained, "only-age", age_encryption_recipients=[RECIPIENT])
    run, kind, name = saved["path"].removeprefix("tinker://").split("/")
    directory = server.home / "checkpoints" / run.replace(":", "_") / kind / name
    names = {each.name for each in directory.iterdir()}
    assert names == {"adapter_config.json.age", "adapter_model.safetensors.age", "checkpoint_complete", "metadata.json"}
    assert (directory / "adapter_model.safetensors.age").read_bytes().startswith(b"age-encryption.org/v1\n-> X25519 ")


def test_other_recipients_are_refused_by_name(raw, trained):
    for recipient, word in [("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI", "SSH"), (RECIPIENT[:-1] + "q", "checksum"),
                            (IDENTITY, "secret")]:
        refused = save(raw, trained, "refused", age_encryption_recipients=[RECIPIENT, recipient])
        assert refused["category"] == "user", refused
        assert word in refused["error"] and "age_encryption_recipients[1]" in refused["error"], refused
        assert recipient not in refused["error"]
    assert "1 to 10" in save(raw, trained, "refused", age_encryption_recipients=[RECIPIENT] * 11)["error"]
    unknown = save(raw, trained, "refused", encryption="none")
    assert unknown.status == 400 and "encryption" in unknown.detail


def test_life_of_external_weights(raw, raw_bob, trained):
    path = save(raw, trained, "life")["path"]
    assert "already exists" in save(raw, trained, "life")["error"]
    at = "training_runs/{}/checkpoints/external_weights/life".format(trained["run"])
    listed = {each["checkpoint_id"]: each for each in raw.get(f"training_runs/{trained['run']}/checkpoints").json["checkpoints"]}
    assert listed["external_weights/life"]["checkpoint_type"] == "external"
    assert listed["external_weights/life"]["tinker_path"] == path
    assert raw.post("weights_info", {"tinker_path": path}).json["lora_rank"] == 8
    assert urls_of(raw_bob, path).status == 404
    assert raw.post(f"{at}/publish", {}).status == 204
    assert set(urls_of(raw_bob, path).json["urls"]) == PLAIN
    url = urls_of(raw, path).json["urls"]["adapter_config.json"]
    body = json.dumps({"ttl_seconds": None})
    assert raw.request("PUT", f"/api/v1/{at}/ttl", body, {"Content-Type": "application/json"}).status == 204
    loaded = raw.result(raw.post("load_weights", {"model_id": trained["run"], "seq_id": next(trained["seq"]),
                                                  "path": path, "optimizer": False})).json
    assert loaded["category"] == "user" and "for download only" in loaded["error"], loaded
    assert raw.request("DELETE", f"/api/v1/{at}").status == 204
    assert urls_of(raw, path).status == 404
    with pytest.raises(urllib.error.HTTPError) as gone:
        fetch(url)
    assert gone.value.code == 404


def test_addresses_begin_with_the_public_url_and_files_survive_a_restart(model_dir, tmp_path):
    configured = configuration(model_dir, public_url="https://tuft.example/below", persistence={"mode": "FILE"})
    running = TuftServer(tmp_path, configured).start()
    try:
        raw = RawClient(running.url, ALICE)
        model = raw.model(MODEL)
        saved = raw.result(raw.post("save_weights_external", {"model_id": model, "path": "x", "seq_id": 1})).json
        running.stop()
        running.start()
        raw = RawClient(running.url, ALICE)
        urls = urls_of(raw, saved["path"]).json["urls"]
        url = urls["adapter_config.json"]
        assert url.startswith("https://tuft.example/below/api/v1/"), url
        parts = urllib.parse.urlsplit(url)
        assert json.loads(fetch(f"{running.url}/api/v1/archives?{parts.query}"))["peft_type"] == "LORA"
    finally:
        running.stop()
