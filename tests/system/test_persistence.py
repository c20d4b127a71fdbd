"""Kills and restarts a server, in both modes. The SDK continues with what it had."""
import concurrent.futures
import contextlib
import http.client
import itertools
import os
import random
import signal
import time

import pytest
import tinker
from tinker import types

import redis_server
import test_custom_losses
from conftest import service_client
from examples_of_data import datum, prompt
from raw_client import PROTOBUF, RawClient, forward_backward
from redis_server import RedisServer
from tuft_server import ALICE, BOB, MODEL, TuftServer, alive, as_yaml, configuration, tuft, wait_until

ADAM = types.AdamParams(learning_rate=5e-3)
TEXT = "the answer is tuft"


class Restartable:
    """One server that is restarted with the same state."""

    def __init__(self, mode, model_dir, tmp_path):
        self.redis = None
        self.model_dir, self.home = model_dir, tmp_path / "home"
        self.persistence = {"mode": mode, "namespace": "test"}
        if mode == "REDIS":
            self.redis = RedisServer(tmp_path / "redis").start()
            self.persistence.update(redis_url=self.redis.url, lease_seconds=1)
        self.server = None

    def config(self, **changes):
        return configuration(self.model_dir, persistence=self.persistence, **changes)

    def start(self):
        # The same port, so that the existing clients find it again.
        port = self.server.url.rsplit(":", 1)[1] if self.server else "0"
        self.server = TuftServer(self.home, self.config())
        self.server.arguments = ["--host", "127.0.0.1", "--port", port]
        return self.server.start()

    def kill(self):
        workers = self.server.worker_pids()
        os.kill(self.server.process.pid, signal.SIGKILL)
        self.server.wait_exit()
        (self.home / "tuft_current_server").unlink(missing_ok=True)
        wait_until(lambda: not any(alive(pid) for pid in workers), 20, "the workers end with their server")

    def end(self):
        if self.server:
            self.server.stop()
        if self.redis:
            self.redis.kill()


@pytest.fixture(params=["FILE", "REDIS"])
def lives(request, model_dir, tmp_path):
    if request.param == "REDIS" and redis_server.MISSING:
        pytest.skip(redis_server.MISSING)
    made = Restartable(request.param, model_dir, tmp_path)
    yield made
    made.end()


def train(client, steps):
    for _ in range(steps):
        client.forward_backward([datum(TEXT)], "cross_entropy").result()
        client.optim_step(ADAM).result()


def loss_of(client):
    return client.forward([datum(TEXT)], "cross_entropy").result().metrics["loss:sum"]


def test_a_killed_server_comes_back_with_its_models_at_the_checkpoint(lives):
    server = lives.start()
    client = service_client(server).create_lora_training_client(base_model=MODEL, rank=8, seed=1)
    train(client, 10)
    path = client.save_state("ten").result().path
    at_checkpoint = loss_of(client)
    lives.kill()
    server = lives.start()
    # Nothing was lost, so the same client continues, with its optimizer.
    assert loss_of(client) == pytest.approx(at_checkpoint, rel=1e-6)
    train(client, 5)
    after = loss_of(client)
    assert after < at_checkpoint

    # Work after the checkpoint is lost with the process, and the client gets one error that says so.
    lives.kill()
    lives.start()
    with pytest.raises(tinker.TinkerError) as told:
        loss_of(client)
    assert path in str(told.value) and "server was restarted" in str(told.value)
    assert loss_of(client) == pytest.approx(at_checkpoint, rel=1e-6)
    # Five more steps give the same loss as before, so the optimizer's moments were restored too.
    client.load_state_with_optimizer(path).result()
    train(client, 5)
    assert loss_of(client) == pytest.approx(after, rel=1e-4)


def test_a_custom_loss_survives_with_its_session(lives):
    raw = RawClient(lives.start().url, ALICE)
    session = raw.session()
    run = raw.model(MODEL, session=session)
    loss = test_custom_losses.create(raw, session, 0, test_custom_losses.CROSS_ENTROPY)["loss_id"]
    lives.kill()
    raw = RawClient(lives.start().url, ALICE)
    passed = test_custom_losses.train(raw, run, 1, "custom", {"loss_id": loss})
    assert "error" not in passed and passed["metrics"]["loss:sum"] > 0, passed


def test_a_gradient_that_no_checkpoint_holds_is_not_lost_in_silence(lives):
    server = lives.start()
    client = service_client(server).create_lora_training_client(base_model=MODEL, rank=8, seed=1)
    client.forward_backward([datum(TEXT)], "cross_entropy").result()
    path = client.save_state("before-the-step").result().path
    lives.server.stop()
    lives.start()
    with pytest.raises(tinker.TinkerError) as told:
        client.optim_step(ADAM).result()
    assert path in str(told.value) and "without the gradient" in str(told.value)
    train(client, 1)


def test_samplers_and_results_outlive_the_server(lives):
    server = lives.start()
    client = service_client(server).create_lora_training_client(base_model=MODEL, rank=8, seed=1)
    train(client, 10)
    sampler = client.save_weights_and_get_sampling_client()
    params = types.SamplingParams(max_tokens=8, temperature=0.0)
    before = sampler.sample(prompt(TEXT[:6]), num_samples=1, sampling_params=params).result().sequences[0].tokens
    raw = RawClient(server.url, ALICE)
    model = raw.model(MODEL)
    done = raw.train(model, 1, forward_backward(model, 1))
    result = raw.result(done)
    assert result.status == 200
    saved = raw.post("save_weights", {"model_id": model, "seq_id": 2, "path": "kept", "type": "save_weights"})
    assert raw.result(saved).status == 200, raw.result(saved)
    lives.kill()
    server = lives.start()
    again = sampler.sample(prompt(TEXT[:6]), num_samples=1, sampling_params=params).result().sequences[0].tokens
    assert again == before
    raw = RawClient(server.url, ALICE)
    assert raw.result(done).json == result.json
    # A repeated submission returns the first one's result and is not executed again.
    assert raw.train(model, 1, forward_backward(model, 1)).json["request_id"] == done.json["request_id"]
    # Another user does not see it.
    assert RawClient(server.url, BOB).result(done).status == 404


def test_what_was_accepted_and_not_finished_is_gone(lives):
    server = lives.start()
    raw = RawClient(server.url, ALICE)
    model = raw.model(MODEL)
    assert raw.result(raw.post("save_weights", {"model_id": model, "seq_id": 1, "path": "first",
                                                "type": "save_weights"})).status == 200
    waiting = raw.train(model, 3, forward_backward(model, 3))  # 2 never arrives
    assert waiting.status == 200
    lives.kill()
    server = lives.start()
    raw = RawClient(server.url, ALICE)
    answer = raw.result(waiting)
    assert answer.status == 410, answer
    assert "/weights/first" in answer.detail and "load" in answer.detail
    # The sequence numbers continue from the weights' position.
    assert raw.result(raw.train(model, 2, forward_backward(model, 2)), protobuf=True).status == 200


def test_clear_forgets_and_another_configuration_is_refused(lives):
    server = lives.start()
    RawClient(server.url, ALICE).model(MODEL)
    server.stop()
    other = TuftServer(lives.home, lives.config(model={"lora_alpha_ratio": 7}))
    other.spawn()
    assert other.wait_exit() == 1
    assert "lora_alpha_ratio" in other.log and "tuft clear persistence" in other.log
    config = lives.home / "tuft.yaml"
    config.write_text(as_yaml(lives.config()))
    cleared = tuft("clear", "persistence", "-c", config, "--force", env={"TUFT_HOME": str(lives.home)})
    assert cleared.returncode == 0, cleared.stderr
    assert "Removed" in cleared.stdout and '"test"' in cleared.stdout
    again = tuft("clear", "persistence", "-c", config, "--force", env={"TUFT_HOME": str(lives.home)})
    assert "Removed 0 records" in again.stdout
    lives.server = None
    assert RawClient(lives.start().url, ALICE).get("healthz").status == 200


@pytest.fixture
def redis_lives(model_dir, tmp_path):
    if redis_server.MISSING:
        pytest.skip(redis_server.MISSING)
    made = Restartable("REDIS", model_dir, tmp_path)
    yield made
    made.end()


def test_a_redis_that_is_away_stops_the_start(redis_lives):
    redis_lives.redis.kill()
    server = TuftServer(redis_lives.home, redis_lives.config()).spawn()
    assert server.wait_exit() == 1
    assert "persistence.redis_url" in server.log and str(redis_lives.redis.socket) in server.log


def test_a_redis_that_goes_away_means_try_again_until_it_is_back(redis_lives):
    server = redis_lives.start()
    raw = RawClient(server.url, ALICE)
    model = raw.model(MODEL)
    redis_lives.redis.kill()
    wait_until(lambda: not raw.get("healthz").json["ready"], 20, "not ready")
    refused = raw.post("create_session", {"tags": [], "user_metadata": {}, "sdk_version": "0", "type": "create_session"})
    assert refused.status == 503, refused
    assert raw.train(model, 1, forward_backward(model, 1)).status == 503
    redis_lives.redis.start()
    wait_until(lambda: raw.get("healthz").json["ready"], 30, "ready again")
    assert raw.result(raw.train(model, 1, forward_backward(model, 1)), protobuf=True).status == 200
    redis_lives.kill()
    raw = RawClient(redis_lives.start().url, ALICE)
    assert raw.post("get_info", {"model_id": model, "type": "get_info"}).status == 200


def test_a_redis_that_becomes_a_replica_means_try_again_until_it_is_the_primary(redis_lives):
    raw = RawClient(redis_lives.start().url, ALICE)
    model = raw.model(MODEL)
    assert redis_lives.redis.command(b"REPLICAOF 127.0.0.1 1\r\n").startswith(b"+OK")
    assert raw.train(model, 1, forward_backward(model, 1)).status == 503
    wait_until(lambda: not raw.get("healthz").json["ready"], 30, "not ready")
    assert redis_lives.redis.command(b"REPLICAOF NO ONE\r\n").startswith(b"+OK")
    wait_until(lambda: raw.get("healthz").json["ready"], 30, "ready again")
    assert raw.result(raw.train(model, 1, forward_backward(model, 1)), protobuf=True).status == 200


def test_redis_holds_tufts_keys(redis_lives):
    server = redis_lives.start()
    raw = RawClient(server.url, ALICE)
    model = raw.model(MODEL)
    assert raw.result(raw.post("save_weights", {"model_id": model, "seq_id": 1, "path": "a",
                                                "type": "save_weights"})).status == 200
    keys = redis_lives.redis.keys()
    assert "test::config_signature" in keys
    assert f"test::training_run::{model}" in keys
    assert f"test::training_run::{model}::ckpt::a" in keys
    assert any(key.startswith("test::session::") for key in keys)
    assert any(key.startswith("test::future::") for key in keys)


def train_until_killed(url, model, first_seq, delivered):
    """Submits passes with a save at every third number. Records each result that it receives."""
    raw = RawClient(url, ALICE, timeout=20)
    with contextlib.suppress(OSError, http.client.HTTPException):
        for seq in itertools.count(first_seq):
            if seq % 3 == 0:
                submitted = raw.post("save_weights", {"model_id": model, "seq_id": seq, "path": f"at-{seq}",
                                                      "type": "save_weights"})
            else:
                submitted = raw.train(model, seq, forward_backward(model, seq, forward_only=True))
            assert submitted.status == 200, submitted
            answer = raw.result(submitted, protobuf=seq % 3 != 0)
            assert answer.status == 200, answer
            # An operation whose answer was lost in the kill may have used up the first number. The error says so.
            if answer.headers["Content-Type"] == PROTOBUF or "path" in answer.json:
                delivered[seq] = submitted.json["request_id"]
            else:
                assert "was used or given up" in answer.json["error"], answer


def test_killed_at_random_moments_under_load_nothing_acknowledged_is_lost_or_done_twice(lives):
    chance = random.Random(4)
    server = lives.start()
    models = [RawClient(server.url, ALICE).model(MODEL) for _ in range(3)]
    delivered = {model: {} for model in models}
    for _ in range(4):
        with concurrent.futures.ThreadPoolExecutor(len(models)) as pool:
            clients = [pool.submit(train_until_killed, server.url, model, max(delivered[model], default=0) + 1,
                                   delivered[model]) for model in models]
            time.sleep(chance.uniform(0.05, 0.6))
            lives.kill()
            for client in clients:
                client.result(30)
        server = lives.start()
        raw = RawClient(server.url, ALICE)
        for model, results in delivered.items():
            for seq, request in results.items():
                if seq % 3 == 0:
                    path = f"tinker://{model}/weights/at-{seq}"
                    assert raw.post("weights_info", {"tinker_path": path, "type": "weights_info"}).status == 200, path
                # The weights do not depend on it, so each result stays valid.
                assert raw.retrieve(request, protobuf=seq % 3 != 0).status == 200, (model, seq)
                # A repeated submission is the same operation.
                if seq % 3 != 0:
                    again = raw.train(model, seq, forward_backward(model, seq, forward_only=True))
                    assert again.json["request_id"] == request, (model, seq)
    assert all(delivered.values())
