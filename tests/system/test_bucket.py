"""Checkpoints in a bucket: a real server and real workers that have no directory in common, and a real S3-compatible server."""
import contextlib
import http.client
import io
import pathlib
import re
import signal
import tarfile
import threading
import urllib.request

import pytest
import s3_server
import tuft_server
import yaml
from conftest import service_client
from examples_of_data import datum
from joining import Trainer, Worker, await_states, certificates, joined_server  # noqa: F401
from raw_client import RawClient
from s3_server import SECRET, Gate, S3Server
from tinker import types
from tuft_server import ALICE, BOB, MODEL, TuftServer, configuration, wait_until

pytestmark = pytest.mark.skipif(s3_server.MISSING is not None, reason=s3_server.MISSING or "")


@pytest.fixture(scope="module", params=sorted(s3_server.servers()))
def store(request, tmp_path_factory):
    with S3Server(tmp_path_factory.mktemp("s3"), request.param) as server:
        yield server


@pytest.fixture
def s3(store):
    """An empty bucket."""
    for key in store.keys():
        store.request("DELETE", key)
    return store


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tuft_server.init_model(tmp_path_factory.mktemp("model") / "tiny", "--size", "tiny")


@pytest.fixture
def start(tmp_path, model, s3):
    """Starts a server with a home of its own and the bucket."""
    started = []

    def start_one(name, section=None, base=model):
        server = TuftServer(tmp_path / name, configuration(base, bucket=section or s3.section(tmp_path)))
        started.append(server)
        return server.start()

    yield start_one
    for server in started:
        server.stop()


def trained(server, key=ALICE):
    client = service_client(server, key).create_lora_training_client(base_model=MODEL, rank=8, seed=3)
    client.forward_backward([datum("kept in a bucket")], "cross_entropy").result()
    client.optim_step(types.AdamParams(learning_rate=5e-3)).result()
    return client


def loss_of(client):
    return client.forward([datum("kept in a bucket")], "cross_entropy").result().metrics["loss:sum"]


def test_a_server_on_another_machine_finds_and_loads_what_the_first_saved(start, s3):
    first = start("first")
    client = trained(first)
    loss = loss_of(client)
    path = client.save_state("one").result().path
    sampler_path = client.save_weights_for_sampler("frozen").result().path
    assert [key for key in s3.keys("tuft/index/") if key.endswith("/weights/one.json")], s3.keys()
    assert {key.rsplit("/", 1)[1] for key in s3.keys("tuft/files/") if "/weights/" in key} == {
        "adapter_config.json", "adapter_model.safetensors", "optimizer.safetensors", "checkpoint_complete"}
    first.stop()

    second = start("second")
    assert not list((second.home / "checkpoints").iterdir())
    rest = service_client(second, ALICE).create_rest_client()
    listed = rest.list_checkpoints(path.split("/")[2]).result()
    assert sorted(one.tinker_path for one in listed.checkpoints) == sorted([path, sampler_path])
    other = service_client(second, ALICE).create_lora_training_client(base_model=MODEL, rank=8)
    other.load_state_with_optimizer(path).result()
    assert loss_of(other) == loss
    sampling = service_client(second, ALICE).create_sampling_client(model_path=sampler_path)
    assert sampling.sample(types.ModelInput.from_ints([1, 2, 3]), 1, types.SamplingParams(max_tokens=4)).result().sequences
    bobs = RawClient(second.url, BOB)
    assert bobs.post("weights_info", {"tinker_path": path}).status == 404


def test_the_section_of_the_page(start, s3, tmp_path):
    """docs/scaling.md, with the address of this store and its keys."""
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs/scaling.md").read_text()
    (stated,) = re.findall(r"(?ms)^```yaml\n(bucket:\n.*?)^```$", page)
    here = s3.section(tmp_path)
    section = {**yaml.safe_load(stated)["bucket"], **{key: here[key] for key in ("endpoint", "credentials_file")}}
    trained(start("one", section)).save_state("one").result()
    assert s3.keys("tuft/index/")


def test_an_archive_comes_from_the_bucket_and_a_deletion_empties_it(start, s3):
    server = start("one")
    client = trained(server)
    path = client.save_state("one").result().path
    rest = service_client(server, ALICE).create_rest_client()
    url = rest.get_checkpoint_archive_url_from_tinker_path(path).result().url
    with urllib.request.urlopen(url, timeout=60) as answer:
        members = tarfile.open(fileobj=io.BytesIO(answer.read())).getnames()
    assert sorted(members) == ["adapter_config.json", "adapter_model.safetensors", "checkpoint_complete"]
    rest.delete_checkpoint_from_tinker_path(path).result()
    wait_until(lambda: client.get_info() and not s3.keys("tuft/index/"), 20, "the checkpoint is gone")


def test_transfers_are_in_the_trace_of_the_save_and_in_the_metrics(start):
    server = start("one")
    trained(server).save_state("one").result()
    raw = RawClient(server.url, ALICE)
    found = wait_until(lambda: raw.get("observe/traces?from=-1h&operation=save_weights&name=bucket.put&limit=1").json["traces"], 20,
                       "the trace of the save is kept")

    def puts():
        spans = {span["span_id"]: span for span in raw.get("observe/traces/" + found[0]["trace_id"]).json["spans"]}
        return [(spans[span["parent_id"]]["name"], span["user"]) for span in spans.values()
                if span["name"] == "bucket.put" and span["parent_id"] in spans]

    # Those of the worker come later.
    wait_until(lambda: sorted(puts()) == [("hf_model.save_state", "alice")] * 4 + [("training_controller.save_checkpoint", "alice")],
               20, "the files and the entry of the index are below what put them")
    assert server.metric("tuft_bucket_duration_seconds_count", operation="put", result="ok") >= 5
    assert server.metric("tuft_bucket_bytes_total", operation="put", result="ok") > 10_000


def test_the_keys_are_in_no_log_and_no_environment(start):
    server = start("one")
    trained(server).save_state("one").result()
    assert "bucket.opened" in server.log and SECRET not in server.log
    worker = next(pathlib.Path(entry) for entry in pathlib.Path("/proc").iterdir()
                  if entry.name.isdigit() and f"\0{server.process.pid}\0".encode() in with_zeros(entry / "cmdline"))
    assert SECRET.encode() not in (worker / "environ").read_bytes()
    assert SECRET not in tuft_server.tuft("config", "show", "-c", server.config_path).stdout


def with_zeros(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_start_with_wrong_keys_fails_and_says_so(tmp_path, model, s3):
    if s3.kind == "moto":
        pytest.skip("moto takes any keys")
    section = s3.section(tmp_path)
    pathlib.Path(section["credentials_file"]).write_text("aws_access_key_id = nobody\naws_secret_access_key = wrong-s3cret\n")
    server = TuftServer(tmp_path / "home", configuration(model, bucket=section)).spawn()
    assert server.process.wait(timeout=30) == 1
    wait_until(lambda: "server.start_failed" in server.log, 10, "the reason is logged")
    assert "s3://checkpoints/tuft/" in server.log and "refuses the server" in server.log, server.log
    assert "s3cret" not in server.log


def test_saves_fail_while_the_bucket_is_away_and_succeed_when_it_is_back(tmp_path, start, s3):
    gate = Gate(s3.port)
    section = s3.section(tmp_path, endpoint=f"http://127.0.0.1:{gate.port}", timeout_seconds=5)
    server = start("one", section)
    trainer = Trainer(server)
    assert trainer.step() == 1
    gate.close()
    failed = trainer.send("save_weights", path="one", type="save_weights")
    assert "does not answer" in failed["error"] and "127.0.0.1" not in failed["error"], failed
    assert trainer.step() == 2, "training goes on"
    assert "bucket.retry" in server.log and "bucket.failed" in server.log
    gate.open()
    trainer.save("one")
    wait_until(lambda: len(s3.keys("tuft/index/")) == 1, 10, "the second save is there alone")
    gate.end()


def test_a_server_ends_in_time_while_the_bucket_is_away(tmp_path, start, s3):
    gate = Gate(s3.port)
    server = start("one", s3.section(tmp_path, endpoint=f"http://127.0.0.1:{gate.port}", timeout_seconds=600))
    trainer = Trainer(server)
    assert trainer.step() == 1
    trainer.save("one")
    gate.close()
    trainer.client.post("save_weights", {"model_id": trainer.model, "seq_id": trainer.seq + 1, "path": "two", "type": "save_weights"})
    deletion = threading.Thread(target=ask_to_delete, args=(trainer, "one"))
    deletion.start()
    wait_until(lambda: all(f"tuft.bucket.operation={word}" in server.log for word in ("put", "delete")), 20,
               "the worker and the server try again")
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(timeout=6) == 0, server.log
    deletion.join()
    gate.end()


def ask_to_delete(trainer, name):
    with contextlib.suppress(OSError, http.client.HTTPException):
        trainer.client.request("DELETE", f"/api/v1/training_runs/{trainer.model}/checkpoints/weights/{name}")


def test_a_large_checkpoint_goes_in_parts(start, s3, tmp_path):
    small = tuft_server.init_model(tmp_path / "small", "--size", "small", "--layers", "8")
    part = 5 << 20
    server = start("one", s3.section(tmp_path, part_bytes=part, cache_bytes=0), small)
    client = service_client(server, ALICE).create_lora_training_client(base_model=MODEL, rank=32, seed=3)
    client.forward_backward([datum("kept in a bucket")], "cross_entropy").result()
    client.optim_step(types.AdamParams(learning_rate=5e-3)).result()
    loss = loss_of(client)
    big = client.save_state("big").result().path
    assert max(s3.sizes("tuft/files/").values()) > part, s3.sizes("tuft/files/")
    client.forward_backward([datum("another text")], "cross_entropy").result()
    client.optim_step(types.AdamParams(learning_rate=5e-3)).result()
    assert loss_of(client) != loss
    client.load_state_with_optimizer(big).result()
    assert loss_of(client) == loss
    assert s3.uploads() == 0


@pytest.fixture
def cluster(tmp_path, certificates, s3):
    """Makes a server that workers join, and workers that have no directory in common with it."""
    gate = Gate(s3.port)
    section = s3.section(tmp_path, endpoint=f"http://127.0.0.1:{gate.port}", timeout_seconds=5)
    server, port, model = joined_server(tmp_path, certificates, bucket=section)
    workers = []

    def join_worker(*arguments):
        scratch = tmp_path / f"scratch-{len(workers)}"
        workers.append(Worker(port, certificates, model, arguments=["--page-directory", str(scratch), *arguments]))
        return workers[-1]

    server.start()
    yield server, join_worker, gate
    for worker in workers:
        worker.end()
    server.stop()
    gate.end()


def test_a_run_of_a_lost_worker_comes_back_in_another_one(cluster, s3):
    server, join_worker, _ = cluster
    first = join_worker()
    await_states(server, "ready")
    trainer = Trainer(server)
    assert trainer.step() == 1
    trainer.save("one")
    assert len(s3.keys("tuft/files/")) == 4
    assert not list((server.home / "checkpoints").iterdir()), "nothing is on the disk of the server"
    first.signal(signal.SIGKILL)
    await_states(server, "dead")
    second = join_worker()
    await_states(server, "dead", "ready")
    wait_until(lambda: trainer.step() == 2, 30, "the run is restored from its checkpoint")
    assert SECRET not in server.log + first.log + second.log


def test_a_worker_that_is_told_to_end_saves_to_the_bucket(cluster):
    server, join_worker, _ = cluster
    first = join_worker()
    await_states(server, "ready")
    join_worker()
    await_states(server, "ready", "standby")
    trainer = Trainer(server)
    assert [trainer.step(), trainer.step()] == [1, 2]
    first.signal(signal.SIGTERM)
    assert first.process.wait(timeout=20) == 0
    assert trainer.step() == 3


def test_a_worker_that_cannot_reach_the_bucket_waits(cluster):
    server, join_worker, gate = cluster
    gate.close()
    worker = join_worker()
    worker.says("cannot reach the server's bucket of checkpoints")
    assert worker.process.poll() is None
    gate.open()
    await_states_last(server, "ready")
    assert Trainer(server).step() == 1


def await_states_last(server, wanted):
    wait_until(lambda: wanted in [row["state"] for row in RawClient(server.url, ALICE).get("observe/workers").json["workers"]], 60,
               f"a worker is {wanted}")


def test_workers_get_the_authority_of_the_store_from_their_server(tmp_path, certificates, s3):
    gate = Gate(s3.port, certificates)
    section = s3.section(tmp_path, endpoint=f"https://localhost:{gate.port}", timeout_seconds=5)
    server, port, model = joined_server(tmp_path, certificates, bucket={**section, "ca_file": str(certificates / "ca.pem")})
    server.start()
    worker = Worker(port, certificates, model)
    try:
        await_states(server, "ready")
        trainer = Trainer(server)
        assert trainer.step() == 1
        trainer.save("one")
        assert len(s3.keys("tuft/files/")) == 4
    finally:
        worker.end()
        server.stop()
    stranger, _, _ = joined_server(tmp_path / "stranger", certificates, bucket=section)
    assert stranger.spawn().process.wait(timeout=30) == 1
    wait_until(lambda: "server.start_failed" in stranger.log, 10, "the reason is logged")
    assert "tls_failed" in stranger.log, stranger.log
    gate.end()


def test_a_save_that_is_killed_leaves_nothing(cluster, s3):
    """The worker dies while its files are on their way."""
    server, join_worker, gate = cluster
    worker = join_worker()
    await_states(server, "ready")
    trainer = Trainer(server)
    assert trainer.step() == 1
    gate.close()  # the worker tries for a while
    trainer.seq += 1
    submitted = trainer.client.post("save_weights", {"model_id": trainer.model, "seq_id": trainer.seq, "path": "one",
                                                     "type": "save_weights"})
    worker.says("bucket.retry")
    worker.signal(signal.SIGKILL)
    gate.open()
    assert "error" in trainer.client.result(submitted).json
    join_worker()
    await_states_last(server, "ready")
    assert s3.keys("tuft/index/") == []
    wait_until(lambda: s3.keys("tuft/files/") == [], 20, "no file of the save is left")
