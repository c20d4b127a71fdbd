"""Workers that join: real tuft-worker processes that dial a real server over TLS."""
import os
import pathlib
import re
import signal
import socket
import subprocess

import pytest
import tuft_server
import yaml
from joining import LEASE, TOKEN, Trainer, Worker, await_states, certificates, joined_server, rows  # noqa: F401
from raw_client import RawClient
from tuft_server import ALICE, BIN, BOB, MODEL, TuftServer, wait_until


@pytest.fixture
def cluster(request, tmp_path, certificates):
    """Makes a server with a joined base model, and workers. A parameter is the lease in seconds."""
    server, port, model = joined_server(tmp_path, certificates, lease=getattr(request, "param", LEASE))
    workers = []

    def join_worker(**options):
        workers.append(Worker(port, certificates, options.pop("model", model), **options))
        return workers[-1]

    server.start()
    yield server, join_worker
    for worker in workers:
        worker.end()
    server.stop()


def test_a_joined_worker_trains_and_samples(cluster):
    server, join_worker = cluster
    assert RawClient(server.url, ALICE).get("healthz").json == {"status": "ok", "ready": False, "role": "leader"}
    join_worker(env={"K8S_POD_NAME": "tuft-0"})
    await_states(server, "ready")
    trainer = Trainer(server)
    assert trainer.step() == 1
    trainer.save("one")
    sampler = trainer.client.sampler(base_model=MODEL).json["sampling_session_id"]
    assert trainer.client.result(trainer.client.sample(sampler, 1)).json["sequences"]
    (row,) = rows(server)
    assert row["joined"] and row["launcher"] == {"k8s.pod.name": "tuft-0"} and row["address"] == "127.0.0.1", row


def test_a_standby_takes_the_place_of_a_worker_that_died(cluster):
    server, join_worker = cluster
    first = join_worker()
    await_states(server, "ready")
    join_worker()
    await_states(server, "ready", "standby")
    trainer = Trainer(server)
    assert trainer.step() == 1
    trainer.save("one")
    assert trainer.step() == 2
    first.signal(signal.SIGKILL)
    await_states(server, "dead", "ready")
    assert "lost its connection" in rows(server)[0]["reason"], rows(server)
    # The run comes back from its newest checkpoint, and the client learns that a step is lost.
    wait_until(lambda: trainer.step() == 2, 30, "the run is restored from its checkpoint")


def test_a_worker_that_is_told_to_end_loses_nothing(cluster):
    """Runs are saved at the end of their step, and the standby goes on with the same weights and moments."""
    server, join_worker = cluster
    first = join_worker()
    await_states(server, "ready")
    join_worker()
    await_states(server, "ready", "standby")
    trainer, still = Trainer(server), Trainer(server)
    assert [trainer.step(), trainer.step(), still.step()] == [1, 2, 1]
    before = trainer.loss()
    assert trainer.send("optim_step", adam_params={"learning_rate": 0.0}, type="optim_step")["metrics"]["optimizer_step"] == 3
    first.signal(signal.SIGTERM)
    # A client that goes on meanwhile waits, and sees no error.
    assert trainer.loss() == pytest.approx(before, rel=1e-6)
    assert trainer.send("optim_step", adam_params={"learning_rate": 1e-3}, type="optim_step")["metrics"]["optimizer_step"] == 4
    assert still.step() == 2
    assert first.process.wait(timeout=20) == 0
    await_states(server, "dead", "ready")
    assert "left" in rows(server)[0]["reason"], rows(server)
    assert "worker.died" not in server.log and "worker.drained" in server.log


def test_a_standby_that_is_told_to_end_ends_at_once(cluster):
    server, join_worker = cluster
    join_worker()
    await_states(server, "ready")
    standby = join_worker()
    await_states(server, "ready", "standby")
    standby.signal(signal.SIGTERM)
    assert standby.process.wait(timeout=10) == 0
    await_states(server, "ready", "dead")


def test_a_gradient_is_not_lost_while_its_step_can_end(cluster):
    server, join_worker = cluster
    first = join_worker()
    await_states(server, "ready")
    trainer = Trainer(server)
    assert trainer.step() == 1
    trainer.loss()
    first.signal(signal.SIGTERM)
    await_states(server, "draining")
    assert first.process.poll() is None
    assert trainer.send("optim_step", adam_params={"learning_rate": 1e-3}, type="optim_step")["metrics"]["optimizer_step"] == 2
    assert first.process.wait(timeout=20) == 0
    join_worker()
    assert trainer.step() == 3


def test_a_worker_whose_time_is_over_ends_and_the_client_is_told(cluster):
    server, join_worker = cluster
    first = join_worker(arguments=["--drain-seconds", "3"])
    await_states(server, "ready")
    trainer = Trainer(server)
    assert trainer.step() == 1
    trainer.loss()
    first.signal(signal.SIGTERM)
    assert first.process.wait(timeout=20) == 0
    join_worker()
    told = trainer.step()
    assert "went back to checkpoint" in str(told) and "without the gradient" in str(told), told
    assert trainer.step() == 2


def test_a_worker_that_waits_for_a_silent_server_ends_at_once(certificates, tmp_path):
    model = tuft_server.init_model(tmp_path / "model", "--size", "tiny")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        worker = Worker(silent.getsockname()[1], certificates, model)
        accepted, _ = silent.accept()
        with accepted:
            assert accepted.recv(1), "the handshake has begun"
            worker.signal(signal.SIGTERM)
            # Without an answer of the server it would try for ten seconds.
            assert worker.process.wait(timeout=5) == 0
    assert "trying again" not in worker.log


@pytest.mark.parametrize("cluster", [60], indirect=True)  # a worker is silent for less than its lease
def test_the_console_uses_the_words_of_tuft_workers(cluster):
    server, join_worker = cluster
    client = RawClient(server.url, ALICE)

    def await_words(word):
        wait_until(lambda: {client.get("observe/overview").json["models"][0]["state"],
                            client.get("observe/system").json["workers"][0]["state"]} == {word}, 30, f"both say {word}")

    await_words("absent")
    worker = join_worker()
    await_states(server, "ready")
    await_words("ready")
    worker.signal(signal.SIGSTOP)
    await_words("silent")
    worker.signal(signal.SIGCONT)
    await_words("ready")


def test_a_token_that_others_can_read_is_told(cluster, tmp_path):
    server, join_worker = cluster
    os.chmod(tmp_path / "token", 0o640)
    server.stop()
    server.start()
    wait_until(lambda: "join.token_file: can be read by others" in server.log, 30, "the server warns")
    token = tmp_path / "of_worker"
    token.write_text(TOKEN + "\n")
    for mode, is_told in ((0o644, True), (0o600, False)):
        os.chmod(token, mode)
        worker = join_worker(arguments=["--join-token-file", token])
        worker.says("worker.accepted")
        assert ("worker.token_exposed" in worker.log) is is_told, worker.log


def test_a_worker_that_hangs_loses_its_lease_and_joins_again(cluster):
    server, join_worker = cluster
    worker = join_worker()
    await_states(server, "ready")
    worker.signal(signal.SIGSTOP)
    await_states(server, "dead")
    worker.signal(signal.SIGCONT)
    await_states(server, "dead", "ready")
    assert Trainer(server).step() == 1


def test_a_worker_joins_the_server_that_was_started_again(cluster):
    server, join_worker = cluster
    worker = join_worker()
    await_states(server, "ready")
    trainer = Trainer(server)
    assert trainer.step() == 1
    trainer.save("one")
    server.stop()
    worker.says("trying again")
    server.start()
    await_states(server, "ready")
    trainer.client = RawClient(server.url, ALICE)
    assert trainer.step() == 2


@pytest.mark.parametrize("what, says", [({"token": "not the token, but long"}, "the token is wrong"),
                                        ({"arguments": ["--model-name", "other"]}, "no base model of this name"),
                                        ({"model": "other"}, "is not that of the server")])
def test_a_worker_that_may_not_join_ends_and_says_why(cluster, tmp_path, what, says):
    server, join_worker = cluster
    if "model" in what:
        what = {"model": tuft_server.init_model(tmp_path / "other", "--size", "tiny", "--layers", "3")}
    worker = join_worker(**what)
    assert worker.process.wait(timeout=20) == 1
    worker.says(says)
    assert rows(server) == []


def test_only_operators_see_the_machines(cluster):
    server, join_worker = cluster
    join_worker()
    await_states(server, "ready")
    (row,) = RawClient(server.url, BOB).get("observe/workers").json["workers"]
    assert row["state"] == "ready" and row["host"] is None and row["address"] is None and row["pid"] == 0, row
    listed = tuft_server.tuft("workers", "--url", server.url, env={"TUFT_API_KEY": ALICE}).stdout
    assert "ready" in listed and "127.0.0.1" in listed, listed


def test_strangers_cost_little(cluster):
    """Connections without TLS, or that send nothing, do not keep a worker from joining."""
    server, join_worker = cluster
    port = int(next(line for line in server.lines if "workers can join at" in line).rsplit(":", 1)[1].split()[0])
    strangers = []
    for _ in range(8):
        strangers.append(tuft_server.socket.create_connection(("127.0.0.1", port)))
    strangers[0].sendall(b"GET / HTTP/1.1\r\n\r\n")
    join_worker()
    await_states(server, "ready")
    for stranger in strangers:
        stranger.close()


def test_the_commands_of_the_page(tmp_path, certificates):
    """docs/scaling.md, with the paths and the addresses of this machine."""
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs/scaling.md").read_text()
    config, token, _, worker, workers = [text for _, text in re.findall(r"(?ms)^```(\w+)\n(.*?)^```$", page)]
    model = tuft_server.init_model(tmp_path / "model", "--size", "tiny")
    port = tuft_server.free_port()
    subprocess.run(["bash", "-ec", token], cwd=tmp_path, check=True)
    for stated, here in {"/models/Qwen3-0.6B": str(model), "4096": "256", "/shared/checkpoints": str(tmp_path / "shared"),
                         "0.0.0.0": "127.0.0.1", "10620": str(port), "/etc/tuft/server": str(certificates / "server"),
                         "/etc/tuft/join-token": str(tmp_path / "join-token")}.items():
        assert stated in config, stated
        config = config.replace(stated, here)
    server = TuftServer(tmp_path / "home", {**yaml.safe_load(config), "authorized_users": tuft_server.USERS}).start()
    worker = worker.replace("tuft.example.com:10620", f"localhost:{port}").replace("/models/Qwen3-0.6B", str(model))
    worker = worker.replace("authority.pem", str(certificates / "ca.pem"))
    environment = {**tuft_server.clean_environment(), "PATH": f"{BIN}:{os.environ['PATH']}", "TUFT_API_KEY": ALICE,
                   "TUFT_HOME": str(tmp_path / "home")}
    joined = subprocess.Popen(["bash", "-ec", "exec " + worker], cwd=tmp_path, env=environment)
    try:
        await_states(server, "ready")
        listed = subprocess.run(["bash", "-ec", workers], env=environment, check=True, capture_output=True, text=True).stdout
        assert "ready" in listed, listed
    finally:
        joined.kill()
        joined.wait()
        server.stop()
