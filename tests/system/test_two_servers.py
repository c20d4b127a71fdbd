"""Two servers with one Redis: one leads, the other answers reads and takes over. kill -9, SIGSTOP and a cut-off Redis at
the real programs."""
import contextlib
import os
import shutil
import signal
import time

import pytest
import tinker
from tinker import types

import redis_server
from examples_of_data import datum
from joining import Trainer, certificates  # noqa: F401
from pair import Pair, RedisLine, Switch
from raw_client import RawClient
from tuft_server import ALICE, BOB, MODEL, tuft, wait_until

pytestmark = pytest.mark.skipif(redis_server.MISSING is not None, reason=str(redis_server.MISSING))


@pytest.fixture
def pair(tmp_path, certificates, model_dir):
    made = Pair(tmp_path, certificates, model_dir)
    yield made
    made.end()


def client_of(pair, number, key=ALICE):
    return RawClient(pair.url(number), key)


def trainer_of(pair, number, key=ALICE):
    wait_until(lambda: pair.ready(number), 30, "a worker serves")
    return Trainer(pair.servers[number])


def test_the_standby_says_what_it_is_and_refuses_changes(pair):
    pair.start()
    standby = client_of(pair, 1)
    assert standby.get("healthz").json == {"status": "ok", "ready": False, "role": "standby"}
    assert standby.get("healthz?role=leader").status == 503
    assert client_of(pair, 0).get("healthz?role=leader").status == 200
    refused = standby.post("create_session", {"tags": [], "user_metadata": {}, "sdk_version": "0.25.0", "type": "create_session"})
    assert refused.status == 503 and int(refused.headers["Retry-After"]) > 0, refused
    assert refused.json["leader"] == pair.url(0), refused
    assert standby.request("GET", "/metrics").status == 200
    assert pair.servers[1].metric("tuft_leader") == 0 and pair.servers[0].metric("tuft_leader") == 1
    wait_until(lambda: pair.servers[0].metric("tuft_leader_standby") == 1, 20, "the leader knows of its standby")
    # Strangers learn neither what is stored nor where the leader is.
    stranger = RawClient(pair.url(1), "tml-nobody")
    for path in ("sessions", "training_runs", "no_such_route"):
        answer = stranger.get(path)
        assert answer.status in (401, 403, 404, 503) and str(pair.ports[0]) not in answer.body.decode(), answer
    assert str(pair.ports[0]) not in RawClient(pair.url(1), None).request("GET", "/console/login").body.decode()


def test_the_standby_answers_reads_from_the_records(pair):
    pair.start()
    pair.join_worker()
    trainer = trainer_of(pair, 0)
    trainer.step()
    trainer.save("one")
    sampler = trainer.client.sampler(base_model=MODEL).json["sampling_session_id"]
    pending = trainer.client.optim(trainer.model, trainer.seq + 2)  # waits for a missing number
    standby, bob = client_of(pair, 1), client_of(pair, 1, BOB)
    seen = wait_until(lambda: (answer := standby.get(f"training_runs/{trainer.model}")).status == 200 and answer, 20, "the run is there")
    assert 0 <= int(seen.headers["X-Tuft-State-Age"]) < 20
    wait_until(lambda: standby.get(f"samplers/{sampler}").status == 200, 20, "the sampling session is there")
    assert standby.post("get_info", {"model_id": trainer.model, "type": "get_info"}).status == 200
    wait_until(lambda: "weights/one" in standby.get(f"training_runs/{trainer.model}/checkpoints").body.decode(), 20, "the checkpoint is there")
    done = trainer.client.train(trainer.model, trainer.seq + 1)
    trainer.client.result(done, protobuf=True)
    wait_until(lambda: standby.retrieve(done.json["request_id"]).status == 200, 20, "the result is there")
    assert standby.retrieve(done.json["request_id"]).body == trainer.client.retrieve(done.json["request_id"]).body
    # Of what it does not have it says nothing; the leader may have it.
    for answer in (standby.retrieve("no-such-request"), standby.get("training_runs/no-such-run"), bob.get(f"training_runs/{trainer.model}"),
                   bob.retrieve(done.json["request_id"])):
        assert answer.status == 503 and answer.json["leader"] == pair.url(0), answer
    assert trainer.model not in bob.get("training_runs").body.decode()
    assert trainer.client.result(pending).status == 200, "the leader goes on undisturbed"
    assert trainer.client.get(f"training_runs/{trainer.model}/checkpoints").status == 200


def test_reads_remove_no_file_of_the_leader(pair):
    """The standby looks at the checkpoints while the leader writes them."""
    pair.start()
    folder = pair.directory / "checkpoints"
    pair.join_worker()
    trainer = trainer_of(pair, 0)
    trainer.save("one")
    # Unnamed, so that a start would remove it if no record named it, and what an interrupted save leaves.
    trainer.send("save_weights_for_sampler", sampling_session_seq_id=1, type="save_weights_for_sampler")
    (run,) = {path.parent.parent for path in folder.glob("*/weights/one")}
    leftovers = [run / "weights" / ".tuft-unfinished", run / "weights" / "one" / "metadata.json.tmp-1"]
    leftovers[0].mkdir()
    leftovers[1].write_text("{}")
    before = set(folder.rglob("*"))

    def scans():
        return pair.servers[1].metric("tuft_redis_operation_duration_seconds_count", operation="SCAN")

    seen = scans()
    wait_until(lambda: scans() >= seen + 14, 30, "it has read all kinds of records twice more")
    assert before <= set(folder.rglob("*")), before - set(folder.rglob("*"))
    for path in leftovers:
        path.rmdir() if path.is_dir() else path.unlink()


def test_the_standby_takes_over_within_five_seconds_of_kill_9(pair, record_property):
    pair.start()
    pair.join_worker()
    trainer = trainer_of(pair, 0)
    assert trainer.step() == 1
    trainer.save("one")
    began = time.monotonic()
    pair.kill(0)
    leads = pair.await_takeover(1, began)
    wait_until(lambda: pair.ready(1), 20, "the worker has joined the new leader")
    serves = time.monotonic() - began
    record_property("takeover", (leads, serves))
    print(f"leads after {leads:.2f} s, serves after {serves:.2f} s")
    assert leads < 5 and serves < 8, (leads, serves)
    trainer.client = client_of(pair, 1)
    assert trainer.step() == 2, "nothing was lost, so the client sees no error"
    # The former leader comes back as the standby.
    pair.spawn(0)
    pair.await_role(0, "standby")
    assert pair.role(1) == "leader"


def test_a_server_that_ends_in_order_gives_the_lease_up(pair):
    pair.start()
    began = time.monotonic()
    status, _ = pair.servers[0].stop()
    assert status == 0
    ended = time.monotonic()
    pair.await_takeover(1)
    assert time.monotonic() - ended < 2.5, "nobody waits for the end of the lease"
    assert "leader.elected" in pair.servers[1].log, began


def test_a_stopped_leader_writes_nothing_when_it_goes_on(pair):
    """Split brain: the leader sleeps past its lease with work in its hands, another one leads, and it wakes up."""
    pair.start()
    pair.join_worker()
    trainer = trainer_of(pair, 0)
    assert trainer.step() == 1
    trainer.save("one")
    session = trainer.client.session()
    former = pair.servers[0]
    os.kill(former.process.pid, signal.SIGSTOP)
    # Requests that it will find when it wakes up.
    waiting = [RawClient(pair.url(0), ALICE) for _ in range(8)]
    for number, client in enumerate(waiting):
        client.connection.request("PUT", f"/api/v1/sessions/{session}/project", f'{{"project_id":"lost{number}"}}',
                                  {"X-API-Key": ALICE, "Content-Type": "application/json"})
    pair.await_takeover(1)
    leader = client_of(pair, 1)
    assert leader.request("PUT", f"/api/v1/sessions/{session}/project", '{"project_id":"kept"}',
                          {"Content-Type": "application/json"}).status == 204
    keys = pair.redis.keys()
    os.kill(former.process.pid, signal.SIGCONT)
    assert pair.gone(0) == 3, former.log
    assert "leader.lost" in former.log or "leader.fenced" in former.log, former.log
    for client in waiting:
        with contextlib.suppress(OSError, Exception):
            assert client.connection.getresponse().status != 204, "a change is confirmed that was not made"
    assert pair.redis.keys() == keys or set(keys) <= set(pair.redis.keys())
    assert leader.get(f"sessions/{session}").status == 200
    record = pair.redis.command(f"GET pair::session::{session}\r\n".encode())
    assert b"kept" in record and b"lost" not in record, record
    wait_until(lambda: pair.ready(1), 40, "the worker has come over")
    trainer.client = leader
    wait_until(lambda: trainer.step() == 2, 30, "the run goes on")


def test_a_leader_that_is_cut_off_from_redis_ends_and_the_other_one_leads(pair):
    """Split brain: both run, and only one of them reaches Redis."""
    line = RedisLine(pair.redis, pair.directory / "line")
    pair.redis_urls[0] = line.url
    pair.start()
    pair.join_worker()
    trainer = trainer_of(pair, 0)
    assert trainer.step() == 1
    trainer.save("one")
    wait_until(lambda: pair.servers[0].metric("tuft_leader_standby") == 1, 20, "the leader knows of its standby")
    began = time.monotonic()
    line.cut()
    assert pair.gone(0) == 3, pair.logs[-1]
    assert time.monotonic() - began < 5, "it ends when its lease does"
    assert "leader.lost" in pair.logs[-1] and "lapsed" in pair.logs[-1], pair.logs[-1]
    pair.await_takeover(1)
    wait_until(lambda: pair.ready(1), 20, "the worker has come over")
    trainer.client = client_of(pair, 1)
    assert trainer.step() == 2


def test_a_leader_alone_waits_for_redis_and_loses_nothing(pair):
    pair.spawn(0)
    pair.await_role(0, "leader")
    pair.join_worker()
    trainer = trainer_of(pair, 0)
    assert trainer.step() == 1
    pair.redis.kill()
    wait_until(lambda: "leader.lapsed" in pair.servers[0].log, 20, "the lease has ended")
    pair.redis.start()
    wait_until(lambda: pair.ready(0), 30, "Redis is back")
    assert trainer.step() == 2, "the run was not touched"


def test_a_killed_standby_disturbs_nobody(pair):
    pair.start()
    pair.join_worker()
    trainer = trainer_of(pair, 0)
    for step in range(1, 4):
        pair.kill(1)
        assert trainer.step() == step
        pair.spawn(1)
        pair.await_role(1, "standby")
    assert pair.role(0) == "leader"


def test_the_sdk_goes_on_over_a_takeover(pair):
    pair.start()
    pair.join_worker()
    trainer_of(pair, 0)
    switch = Switch(pair)
    try:
        client = tinker.ServiceClient(base_url=switch.url, api_key=ALICE).create_lora_training_client(base_model=MODEL, rank=4)
        adam = types.AdamParams(learning_rate=1e-3)
        client.forward_backward([datum("hello")], "cross_entropy").result()
        client.optim_step(adam).result()
        client.save_state("one").result()
        loss = client.forward([datum("hello")], "cross_entropy").result().metrics["loss:sum"]
        pair.kill(0)
        again = client.forward([datum("hello")], "cross_entropy").result()
        assert again.metrics["loss:sum"] == pytest.approx(loss, rel=1e-5)
        client.forward_backward([datum("hello")], "cross_entropy").result()
        client.optim_step(adam).result()
    finally:
        switch.cut()


def test_a_worker_does_not_join_a_server_of_an_earlier_term(pair):
    """Two namespaces stand for two servers that both believe to lead."""
    for number in (0, 1):
        pair.persistence["namespace"] = f"of-{number}"
        pair.spawn(number)
        pair.await_role(number, "leader")
    worker = pair.join_worker(order=(1, 0))
    wait_until(lambda: pair.ready(1), 30, "it serves the later one")
    pair.kill(1)
    worker.says("does not lead any more")
    assert not pair.ready(0)
    pair.persistence["namespace"] = "of-1"
    pair.spawn(1)
    wait_until(lambda: pair.ready(1), 30, "it serves the later one again")


def test_a_standby_of_another_configuration_does_not_start(pair):
    pair.start()
    pair.servers[1].stop()
    pair.changes["limits"] = {"runs_per_user_max": 5}  # may differ
    pair.spawn(1)
    pair.await_role(1, "standby")
    pair.servers[1].stop()
    pair.model_dir = shutil.copytree(pair.model_dir, pair.directory / "another")
    server = pair.spawn(1)
    assert server.wait_exit() == 1
    assert "configuration mismatch" in server.log and "model_path" in server.log, server.log
    assert pair.role(0) == "leader"


def test_clear_persistence_refuses_while_a_server_uses_the_namespace(pair):
    pair.start()
    run = tuft("clear", "persistence", "--force", "-c", pair.servers[0].config_path, env={"TUFT_HOME": str(pair.servers[0].home)})
    assert run.returncode == 1 and pair.url(0) in run.stderr, run
    for number in (1, 0):
        pair.servers[number].stop()
    run = tuft("clear", "persistence", "--force", "-c", pair.servers[0].config_path, env={"TUFT_HOME": str(pair.servers[0].home)})
    assert run.returncode == 0, run
    assert not [key for key in pair.redis.keys() if key.startswith("pair::")], pair.redis.keys()
