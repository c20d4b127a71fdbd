"""Tests the ends of sessions and the limits between users with the real SDK."""
import pytest
from tinker import types

from conftest import service_client
from examples_of_data import datum, logprobs_of
from raw_client import RawClient
from tuft_server import ALICE, BOB, MODEL, TuftServer, configuration, wait_until

IDLE = 30  # the minimum; the SDK sends a heartbeat every 10 s
ADAM = types.AdamParams(learning_rate=5e-3)


@pytest.fixture(scope="module")
def server(model_dir, tmp_path_factory):
    limits = {"session_idle_seconds": IDLE, "samples_in_flight_per_user_max": 8}
    running = TuftServer(tmp_path_factory.mktemp("home"),
                         configuration(model_dir, limits=limits, persistence={"mode": "FILE"}))
    running.start()
    yield running
    status, _ = running.stop()
    assert status == 0, running.log
    assert not running.error_lines(), "\n".join(running.error_lines())


def trained(client, text, steps=2):
    training = client.create_lora_training_client(base_model=MODEL, rank=4, seed=3)
    for _ in range(steps):
        training.forward_backward([datum(text)], "cross_entropy")
        training.optim_step(ADAM).result()
    return training, logprobs_of(training.forward([datum(text)], "cross_entropy").result())[0]


def message_of(answer):
    body = answer.json
    return body.get("detail") or body.get("error")


def test_a_silent_session_is_saved_and_an_idle_sdk_client_lives_on(server):
    """The silent session is made with raw requests, because the SDK's heartbeat keeps its sessions alive."""
    idle_text = "the client does nothing for a while"
    idle, before = trained(service_client(server, ALICE), idle_text)
    raw = RawClient(server.url, ALICE)
    session = raw.session()
    model = raw.model(MODEL, session)
    assert raw.result(raw.train(model, 1), protobuf=True).status == 200
    assert "metrics" in raw.result(raw.optim(model, 2)).json
    info = {"model_id": model, "type": "get_info"}

    def over():
        answer = raw.post("get_info", info)
        return answer if answer.status == 404 and "/weights/expired-" in message_of(answer) else None

    answer = wait_until(over, IDLE + 30, "the session ends")
    text = message_of(answer)
    assert "session_idle_seconds" in text, text
    assert raw.post("session_heartbeat", {"session_id": session, "type": "session_heartbeat"}).status == 410
    path = next(word for word in text.replace(": make", " ").split() if word.startswith("tinker://"))
    client = service_client(server, ALICE)
    loaded = client.create_training_client_from_state_with_optimizer(path)
    loaded.forward_backward([datum("goes on")], "cross_entropy").result()
    after = logprobs_of(idle.forward([datum(idle_text)], "cross_entropy").result())[0]
    assert list(after) == pytest.approx(list(before), abs=1e-5)


def test_finishing_a_session_frees_it_at_once(server):
    raw = RawClient(server.url, ALICE)
    session = raw.session()
    model = raw.model(MODEL, session)
    assert raw.post(f"sessions/{session}/finish", {}).status in (200, 204)
    assert raw.post("get_info", {"model_id": model, "type": "get_info"}).status == 404
    assert raw.post(f"sessions/{session}/finish", {}).status in (200, 204)
    assert RawClient(server.url, BOB).post(f"sessions/{session}/finish", {}).status == 404


def test_a_finished_session_answers_heartbeats_with_410_and_its_reason(server):
    raw = RawClient(server.url, ALICE)
    session = raw.session()
    beat = {"session_id": session, "type": "session_heartbeat"}
    assert raw.post("session_heartbeat", beat).status == 200
    finish = {"reason": {"type": "interrupted"}, "detail": "Ctrl-C"}
    assert raw.post(f"sessions/{session}/finish", finish).status == 200
    answer = raw.post("session_heartbeat", beat)
    assert answer.status == 410 and "interrupted" in answer.detail, answer
    assert RawClient(server.url, BOB).post("session_heartbeat", beat).status == 404


def test_a_session_keeps_its_display_name_over_a_restart(model_dir, tmp_path):
    running = TuftServer(tmp_path, configuration(model_dir, persistence={"mode": "FILE"})).start()
    try:
        made = RawClient(running.url, ALICE).post("create_session", {
            "tags": [], "user_metadata": {"recipe_name": "x"}, "sdk_version": "0.38.0", "display_name": "nightly",
            "type": "create_session"}).json["session_id"]
        assert RawClient(running.url, ALICE).get(f"sessions/{made}").json["display_name"] == "nightly"
        running.stop()
        running.start()
        session = RawClient(running.url, ALICE).get(f"sessions/{made}").json
        assert session["display_name"] == "nightly" and session["user_metadata"] == {"recipe_name": "x"}
    finally:
        running.stop()


def test_search_finds_own_sessions_by_name_state_and_metadata(server):
    raw, bob = RawClient(server.url, ALICE), RawClient(server.url, BOB)

    def create(client, name, **metadata):
        return client.post("create_session", {"tags": [], "user_metadata": metadata, "sdk_version": "0.38.0",
                                              "display_name": name, "type": "create_session"}).json["session_id"]

    def search(client=raw, **query):
        answer = client.post("sessions/search", {"user_metadata": {}, "owner": {"type": "own"}, "limit": 50, **query})
        assert answer.status == 200, answer
        return answer.json["sessions"]

    first, second = create(raw, "Search me once", a="b"), create(raw, "search me twice")
    create(bob, "search me, I am bob's")
    assert [each["session_id"] for each in search(display_name="ME search")] == [second, first]
    assert search(display_name="ME search", limit=1)[0]["status"] == {"type": "active"}
    raw.post(f"sessions/{first}/finish", {"reason": {"type": "errored"}, "detail": "out of data"})
    found = search(statuses=[{"type": "client_finished", "reasons": ["errored"]}], user_metadata={"a": "b"})
    assert [each["session_id"] for each in found] == [first]
    assert found[0]["status"] == {"type": "client_finished", "reason": {"type": "errored"}, "detail": "out of data"}
    assert search(session_id=first, client=bob) == []
    page = raw.post("sessions/search", {"display_name": "search me", "limit": 1}).json
    rest = raw.post("sessions/search", {"display_name": "search me", "limit": 1, "cursor": page["next_cursor"]}).json
    assert [page["sessions"][0]["session_id"], rest["sessions"][0]["session_id"]] == [second, first]
    assert rest["next_cursor"] is None


def test_too_many_samples_are_429_and_the_sdk_waits(server):
    raw = RawClient(server.url, ALICE)
    sampler = raw.sampler(base_model=MODEL).json["sampling_session_id"]
    answers = [raw.sample(sampler, number, num_samples=32, max_tokens=200) for number in range(1, 30)]
    assert {answer.status for answer in answers} <= {200, 202, 429}, answers
    refused = [answer for answer in answers if answer.status == 429]
    assert refused and "limits.samples_in_flight_per_user_max" in refused[0].detail
    for answer in answers:
        if answer.status != 429:
            raw.result(answer, protobuf=True)

    sampling = service_client(server, BOB).create_sampling_client(base_model=MODEL)
    prompt = types.ModelInput.from_ints([1, 2, 3])
    params = types.SamplingParams(max_tokens=30)
    futures = [sampling.sample(prompt, num_samples=1, sampling_params=params) for _ in range(24)]
    assert len([future.result() for future in futures]) == 24


def test_a_cancelled_future_fails_with_its_reason(server):
    raw = RawClient(server.url, ALICE)
    sampler = raw.sampler(base_model=MODEL).json["sampling_session_id"]
    submitted = raw.sample(sampler, 1, max_tokens=240, num_samples=8)
    request = submitted.json["request_id"]
    assert RawClient(server.url, BOB).post("cancel_future", {"request_id": request}).status == 404
    assert raw.post("cancel_future", {"request_id": request}).status == 200
    answer = raw.result(submitted)
    assert "error" not in answer.json or answer.json["category"] == "user"


def test_a_user_with_a_queue_does_not_hold_up_another(model_dir, tmp_path):
    running = TuftServer(tmp_path, configuration(model_dir)).start()
    try:
        alice = service_client(running, ALICE).create_sampling_client(base_model=MODEL)
        bob = service_client(running, BOB).create_sampling_client(base_model=MODEL)
        prompt = types.ModelInput.from_ints([1, 2, 3])
        bob.sample(prompt, num_samples=1, sampling_params=types.SamplingParams(max_tokens=4)).result()
        queue = [alice.sample(prompt, num_samples=1, sampling_params=types.SamplingParams(max_tokens=60))
                 for _ in range(2000)]
        wait_until(lambda: any(future.done() for future in queue), 120, "alice's first sample")
        bob.sample(prompt, num_samples=1, sampling_params=types.SamplingParams(max_tokens=4)).result()
        open_ones = sum(not future.done() for future in queue)
        assert open_ones > 500, f"only {open_ones} of alice's samples were still open"
    finally:
        running.process.kill()
        running.process.wait()
