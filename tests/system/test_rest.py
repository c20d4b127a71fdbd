"""Tests what a user sees of their own data through the SDK's RestClient and the `tinker` CLI, and what bob sees."""
import datetime
import io
import json
import pathlib
import tarfile
import urllib.error
import urllib.request

import pytest
import tinker
from tinker import types

from conftest import sdk_cli, service_client
from raw_client import RawClient
from tuft_server import ALICE, BOB, MODEL, TuftServer, configuration, wait_until



@pytest.fixture(scope="module")
def owned(server):
    """Two of alice's runs in a session of their own; the first has checkpoints of both kinds."""
    client = service_client(server, ALICE)
    run = client.create_lora_training_client(base_model=MODEL, rank=8, user_metadata={"renderer_name": "r"})
    other = client.create_lora_training_client(base_model=MODEL, rank=4)
    info = run.get_info().model_id
    first = run.save_state("0001").result().path
    run.save_state("0002").result()
    sampler_path = run.save_weights_for_sampler("s").result().path
    sampler = client.create_sampling_client(model_path=sampler_path)
    sampler.sample(types.ModelInput.from_ints([1, 2]), 1, types.SamplingParams(max_tokens=1)).result()
    return {"client": client, "run": info, "other": other.get_info().model_id, "session": info.split(":")[0],
            "path": first, "sampler_path": sampler_path, "training": run}


@pytest.fixture
def rest(server):
    return service_client(server, ALICE).create_rest_client()


@pytest.fixture
def rest_bob(server):
    return service_client(server, BOB).create_rest_client()


def not_found(call):
    with pytest.raises(tinker.NotFoundError) as caught:
        call().result()
    return caught.value.body


# ---- sessions

def test_sessions_and_their_parts(owned, rest, rest_bob):
    assert owned["session"] in rest.list_sessions(limit=500).result().sessions
    assert owned["session"] not in rest_bob.list_sessions(limit=500).result().sessions
    session = rest.get_session(owned["session"]).result()
    assert session.training_run_ids == [owned["run"], owned["other"]]
    assert len(session.sampler_ids) == 1 and session.sampler_ids[0].startswith(owned["session"] + ":sample:")
    sampler = rest.get_sampler(session.sampler_ids[0]).result()
    assert (sampler.base_model, sampler.model_path) == (MODEL, owned["sampler_path"])
    assert not_found(lambda: rest_bob.get_session(owned["session"])) == not_found(lambda: rest_bob.get_session("unknown"))


def test_sessions_in_pages(rest, raw):
    for _ in range(3):
        raw.session()
    whole = rest.list_sessions(limit=500).result().sessions
    pages = [rest.list_sessions(limit=1, offset=i).result().sessions for i in range(len(whole))]
    assert [page[0] for page in pages] == whole
    assert rest.list_sessions(offset=len(whole)).result().sessions == []


def test_project_of_a_session(owned, rest, rest_bob):
    assert rest.list_training_runs(project_id="p 1").result().training_runs == []
    rest.assign_session_project(owned["session"], "p 1").result()
    runs = rest.list_training_runs(project_id="p 1").result().training_runs
    assert {run.training_run_id for run in runs} == {owned["run"], owned["other"]}
    not_found(lambda: rest_bob.assign_session_project(owned["session"], "mine"))


# ---- training runs

def test_training_run_has_what_the_client_gave_it(owned, rest):
    run = rest.get_training_run(owned["run"]).result()
    assert (run.base_model, run.model_owner, run.is_lora, run.lora_rank, run.corrupted) == (MODEL, "alice", True, 8, False)
    assert run.user_metadata == {"renderer_name": "r"}
    assert run.last_checkpoint.checkpoint_id == "weights/0002"
    assert run.last_sampler_checkpoint.checkpoint_id == "sampler_weights/s"
    age = datetime.datetime.now(datetime.UTC) - run.last_request_time
    assert datetime.timedelta(0) <= age < datetime.timedelta(minutes=5)
    by_path = rest.get_training_run_by_tinker_path(owned["path"]).result()
    assert by_path.training_run_id == owned["run"]
    info = rest.get_weights_info_by_tinker_path(owned["path"]).result()
    assert (info.base_model, info.lora_rank, info.is_lora) == (MODEL, 8, True)


def test_training_runs_in_pages(owned, rest, rest_bob):
    whole = rest.list_training_runs(limit=100).result()
    assert whole.cursor.total_count == len(whole.training_runs) >= 2
    second = rest.list_training_runs(limit=1, offset=1).result()
    assert second.training_runs[0].training_run_id == whole.training_runs[1].training_run_id
    assert (second.cursor.offset, second.cursor.limit, second.cursor.total_count) == (1, 1, whole.cursor.total_count)
    times = [run.last_request_time for run in whole.training_runs]
    assert times == sorted(times, reverse=True)
    assert owned["run"] not in [run.training_run_id for run in rest_bob.list_training_runs(limit=100).result().training_runs]
    foreign = not_found(lambda: rest_bob.get_training_run(owned["run"]))
    assert foreign == not_found(lambda: rest_bob.get_training_run("nobody:train:0"))


# ---- checkpoints

def test_checkpoints_of_a_run_and_of_a_user(owned, rest, rest_bob):
    of_run = rest.list_checkpoints(owned["run"]).result()
    assert of_run.cursor is None
    assert [c.checkpoint_id for c in of_run.checkpoints] == ["weights/0001", "weights/0002", "sampler_weights/s"]
    assert [c.checkpoint_type for c in of_run.checkpoints] == ["training", "training", "sampler"]
    assert all(c.size_bytes > 0 and not c.public and c.expires_at is None for c in of_run.checkpoints)
    assert of_run.checkpoints[0].tinker_path == owned["path"]
    first = rest.list_user_checkpoints(limit=1).result()
    assert first.cursor.total_count >= 3 and len(first.checkpoints) == 1
    assert owned["path"] not in [c.tinker_path for c in rest_bob.list_user_checkpoints().result().checkpoints]
    not_found(lambda: rest_bob.list_checkpoints(owned["run"]))


def test_publishing_opens_the_checkpoint_and_nothing_else(owned, rest, rest_bob):
    path = owned["sampler_path"]
    not_found(lambda: rest_bob.get_training_run(owned["run"], access_scope="accessible"))
    not_found(lambda: rest_bob.publish_checkpoint_from_tinker_path(path))
    rest.publish_checkpoint_from_tinker_path(path).result()
    assert rest_bob.get_weights_info_by_tinker_path(path).result().lora_rank == 8
    seen = rest_bob.get_training_run_by_tinker_path(path, access_scope="accessible").result()
    assert seen.last_sampler_checkpoint.public and seen.last_checkpoint is None and seen.user_metadata is None
    not_found(lambda: rest_bob.list_checkpoints(owned["run"]))
    not_found(lambda: rest_bob.get_weights_info_by_tinker_path(owned["path"]))
    with pytest.raises(tinker.PermissionDeniedError):
        rest_bob.delete_checkpoint_from_tinker_path(path).result()
    rest.unpublish_checkpoint_from_tinker_path(path).result()
    not_found(lambda: rest_bob.get_weights_info_by_tinker_path(path))


def test_ttl_is_set_and_removed(owned, rest, raw):
    def expires():
        return rest.get_training_run(owned["run"]).result().last_checkpoint.expires_at

    path = owned["path"].replace("0001", "0002")
    rest.set_checkpoint_ttl_from_tinker_path(path, 3600).result()
    left = expires() - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(minutes=59) < left <= datetime.timedelta(hours=1)
    rest.set_checkpoint_ttl_from_tinker_path(path, None).result()
    assert expires() is None
    with pytest.raises(tinker.BadRequestError):
        rest.set_checkpoint_ttl_from_tinker_path(path, 0).result()


def test_archive_is_a_tar_that_peft_reads(owned, rest, rest_bob):
    answer = rest.get_checkpoint_archive_url_from_tinker_path(owned["sampler_path"]).result()
    assert answer.expires > datetime.datetime.now(datetime.UTC)
    with urllib.request.urlopen(answer.url) as response:
        data = response.read()
        assert int(response.headers["Content-Length"]) == len(data)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        files = {pathlib.PurePosixPath(member.name).name: tar.extractfile(member).read() for member in tar if member.isfile()}
        assert all(not member.name.startswith(("/", "..")) for member in tar.getmembers())
    assert json.loads(files["adapter_config.json"])["r"] == 8
    assert files["adapter_model.safetensors"] and files["checkpoint_complete"] == b""
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(answer.url[:-4] + "0000")
    assert caught.value.code == 403
    not_found(lambda: rest_bob.get_checkpoint_archive_url_from_tinker_path(owned["sampler_path"]))


def test_deleted_checkpoint_is_gone_for_lists_and_loads(owned, rest, rest_bob):
    path = owned["training"].save_state("short-lived").result().path
    not_found(lambda: rest_bob.delete_checkpoint_from_tinker_path(path))
    rest.delete_checkpoint_from_tinker_path(path).result()
    assert path not in [c.tinker_path for c in rest.list_checkpoints(owned["run"]).result().checkpoints]
    not_found(lambda: rest.get_weights_info_by_tinker_path(path))
    not_found(lambda: rest.delete_checkpoint_from_tinker_path(path))


# ---- the rest

def test_whoami_says_that_there_are_no_tokens(rest, raw):
    with pytest.raises(RuntimeError, match="JWT"):
        rest.whoami().result()
    answer = raw.post("auth/token", {})
    assert answer.status == 400 and "API key" in answer.detail


def test_finished_session_ends_and_its_checkpoints_stay(server, rest):
    client = service_client(server, ALICE)
    run = client.create_lora_training_client(base_model=MODEL, rank=4, user_metadata={"k": "v"})
    run_id = run.get_info().model_id
    path = run.save_state("kept").result().path
    raw = RawClient(server.url, ALICE)
    assert raw.post(f"sessions/{run_id.split(':')[0]}/finish", {}).status == 200
    wait_until(lambda: raw.post("get_info", {"model_id": run_id}).status == 404, 30, "the run is unloaded")
    kept = rest.get_training_run(run_id).result()
    assert kept.last_checkpoint.tinker_path == path and kept.user_metadata == {"k": "v"}
    assert raw.post("sessions/unknown/finish", {}).status == 404


def test_unloaded_runs_and_projects_come_back_with_the_server(model_dir, tmp_path):
    with TuftServer(tmp_path, configuration(model_dir, persistence={"mode": "FILE"})) as server:
        raw = RawClient(server.url, ALICE)
        session = raw.session()
        model = raw.model(MODEL, session)
        assert raw.request("PUT", f"/api/v1/sessions/{session}/project", json.dumps({"project_id": "p"})).status == 204
        saved = raw.result(raw.post("save_weights", {"model_id": model, "path": "a", "seq_id": 1}))
        assert saved.json["path"].endswith("/weights/a")
        server.stop()
        server.start()
        raw = RawClient(server.url, ALICE)
        assert raw.get("sessions").json["sessions"] == [session]
        runs = raw.get("training_runs?project_id=p").json["training_runs"]
        assert [run["training_run_id"] for run in runs] == [model]


def test_openapi_names_what_the_server_answers(server):
    with urllib.request.urlopen(server.url + "/openapi.json") as response:
        document = json.load(response)
    assert "/api/v1/training_runs/{run_id}/checkpoints/{kind}/{name}/publish" in document["paths"]
    with urllib.request.urlopen(server.url + "/docs") as response:
        assert response.headers["Content-Type"].startswith("text/html")


# ---- the tinker CLI

def cli(server, *arguments, key=ALICE):
    run = sdk_cli(server, "--format", "json", *arguments, key=key)
    return run.returncode, run.stdout, run.stderr


def cli_json(server, *arguments, key=ALICE):
    code, out, err = cli(server, *arguments, key=key)
    assert code == 0, err + out
    return json.loads(out) if out.strip() else None


def test_cli_lists_and_shows(owned, server):
    assert cli(server, "version")[0] == 0
    runs = cli_json(server, "run", "list", "--limit", "0")["runs"]
    assert owned["run"] in [run["training_run_id"] for run in runs]
    assert cli_json(server, "run", "info", owned["run"])["base_model"] == MODEL
    checkpoints = cli_json(server, "checkpoint", "list", "--limit", "0")["checkpoints"]
    assert owned["path"] in [checkpoint["tinker_path"] for checkpoint in checkpoints]
    of_run = cli_json(server, "checkpoint", "list", "--run-id", owned["run"])["checkpoints"]
    assert "weights/0001" in [checkpoint["checkpoint_id"] for checkpoint in of_run]
    assert cli_json(server, "checkpoint", "info", owned["path"])["tinker_path"] == owned["path"]
    code, out, err = cli(server, "run", "info", owned["run"], key=BOB)
    assert code != 0 and "Traceback" not in out + err


def test_cli_changes_checkpoints(owned, server, rest, tmp_path):
    path = owned["training"].save_state("of-the-cli").result().path

    def view():
        return next(c for c in rest.list_checkpoints(owned["run"]).result().checkpoints if c.tinker_path == path)

    assert cli(server, "checkpoint", "publish", path)[0] == 0
    assert view().public
    assert cli(server, "checkpoint", "unpublish", path)[0] == 0
    assert not view().public
    assert cli(server, "checkpoint", "set-ttl", path, "--ttl", "3600")[0] == 0
    assert view().expires_at is not None
    assert cli(server, "checkpoint", "set-ttl", path, "--remove")[0] == 0
    assert view().expires_at is None
    code, out, err = cli(server, "checkpoint", "download", path, "--output", str(tmp_path))
    assert code == 0, err + out
    assert [file for file in tmp_path.rglob("adapter_model.safetensors") if file.stat().st_size > 0]
    cli(server, "checkpoint", "delete", path, "--yes", key=BOB)  # prints the failure and exits with 0
    assert view().tinker_path == path
    assert cli(server, "checkpoint", "delete", path, "--yes")[0] == 0
    assert path not in [c.tinker_path for c in rest.list_checkpoints(owned["run"]).result().checkpoints]
