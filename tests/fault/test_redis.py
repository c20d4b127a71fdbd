"""Redis that is slow, full, read-only or gone: requests wait, or are refused for now; nothing acknowledged is lost, and
afterwards everything works."""
import concurrent.futures

import pytest

import lab_results
import redis_server
from raw_client import RawClient
from tuft_server import ALICE, MODEL, TuftServer, configuration, wait_until

pytestmark = pytest.mark.skipif(redis_server.MISSING is not None, reason=str(redis_server.MISSING))


@pytest.fixture
def redis(tmp_path):
    with redis_server.RedisServer(tmp_path / "redis") as running:
        yield running


@pytest.fixture
def server(model_dir, tmp_path, redis):
    config = configuration(model_dir, persistence={"mode": "REDIS", "redis_url": redis.url})
    with TuftServer(tmp_path / "home", config) as running:
        yield running


def project(client, session, name):
    """Makes a change that is answered when the store has it. Returns 204, or the refusal."""
    return client.request("PUT", f"/api/v1/sessions/{session}/project", f'{{"project_id":"{name}"}}',
                          {"Content-Type": "application/json"})


TROUBLES = {
    "read-only (a replica)": (b"REPLICAOF 127.0.0.1 1\r\n", b"REPLICAOF NO ONE\r\n"),
    "out of memory": (b"CONFIG SET maxmemory 1\r\n", b"CONFIG SET maxmemory 0\r\n"),
}


@pytest.mark.parametrize("name", TROUBLES)
def test_changes_are_refused_while_redis_refuses_and_work_afterwards(server, redis, name):
    begin, end = TROUBLES[name]
    client = RawClient(server.url, ALICE)
    model, session = client.model(MODEL), client.session()
    client.result(client.train(model, 1), protobuf=True)
    redis.command(begin)
    refused = wait_until(lambda: (answer := project(client, session, "a")).status != 204 and answer, 20, "a refusal")
    assert refused.status == 503 and int(refused.headers["Retry-After"]) > 0, refused
    assert client.get("healthz").status == 200
    assert client.get(f"training_runs/{model}").status == 200
    redis.command(end)
    wait_until(lambda: project(client, session, "b").status == 204, 30, "changes are possible again")
    step = wait_until(lambda: (sent := client.optim(model, 2)).status == 200 and sent, 30, "steps are accepted again")
    assert client.result(step).json["metrics"]["optimizer_step"] == 1
    assert any(key.endswith(session) for key in redis.keys())
    lab_results.note("redis", name, 1, "503 with Retry-After, reading works; afterwards the step is done once")


def test_a_slow_redis_delays_changes_and_not_what_needs_no_store(server, redis):
    client, other = RawClient(server.url, ALICE), RawClient(server.url, ALICE)
    session = client.session()
    redis.command(b"CLIENT PAUSE 2000 ALL\r\n")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        change = pool.submit(project, client, session, "slow")
        assert other.get("healthz").status == 200
        assert other.get("sessions").status == 200
        assert change.result(30).status in (204, 503)
    wait_until(lambda: project(client, session, "after").status == 204, 30, "changes are possible again")
    lab_results.note("redis", "no answer for 2 s", 1, "others are served; the change waits")


def test_a_killed_redis_loses_nothing(server, redis):
    client = RawClient(server.url, ALICE)
    model, session = client.model(MODEL), client.session()
    redis.kill()
    assert wait_until(lambda: project(client, session, "a").status == 503, 20, "a refusal")
    assert client.get("healthz").status == 200
    redis.start()
    wait_until(lambda: project(client, session, "b").status == 204, 30, "changes are possible again")
    assert client.result(client.train(model, 1), protobuf=True).status == 200
    lab_results.note("redis", "kill -9, then started again", 1, "503 without it; afterwards all works")
