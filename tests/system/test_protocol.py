"""Tests the difficult parts of the protocol with raw requests: order, repetition, long polls, encodings."""
import concurrent.futures
import time

import pytest

from raw_client import PROTOBUF, RawClient, forward_backward, pb
from tuft_server import ALICE, MODEL


def step_of(answer):
    return answer.json["metrics"]["optimizer_step"]


def test_operations_run_in_order_of_their_numbers(raw):
    """Numbers 3, 2, then 1 are acknowledged at once and executed in the order 1, 2, 3."""
    model = raw.model(MODEL)
    third = raw.optim(model, 3)
    second = raw.train(model, 2)
    assert third.status in (200, 202) and second.status in (200, 202)
    first = raw.train(model, 1)
    assert raw.result(first, protobuf=True).headers["Content-Type"] == PROTOBUF
    assert raw.result(second, protobuf=True).headers["Content-Type"] == PROTOBUF
    assert step_of(raw.result(third)) == 1


def test_a_repeated_submission_gives_the_first_future(raw):
    session = raw.session()
    create = {"session_id": session, "model_seq_id": 0, "base_model": MODEL, "lora_config": {"rank": 4}, "type": "create_model"}
    first, again = raw.post("create_model", create), raw.post("create_model", create)
    assert first.json["request_id"] == again.json["request_id"]
    model = raw.result(first).json["model_id"]
    assert model == f"{session}:train:0"
    submissions = [
        lambda: raw.train(model, 1),
        lambda: raw.optim(model, 2),
        lambda: raw.post("save_weights", {"model_id": model, "path": "once", "seq_id": 3, "type": "save_weights"}),
        lambda: raw.post("save_weights_for_sampler", {"model_id": model, "seq_id": 4, "sampling_session_seq_id": 0,
                                                      "type": "save_weights_for_sampler"}),
    ]
    for submit in submissions:
        first = submit()
        result = raw.result(first, protobuf=True)
        again = submit()
        assert first.json["request_id"] == again.json["request_id"]
        assert raw.result(again, protobuf=True).body == result.body
    raw.result(raw.train(model, 5), protobuf=True)
    assert step_of(raw.result(raw.optim(model, 6))) == 2, "a repeated optim_step ran twice"
    assert step_of(raw.result(raw.optim(model, 7))) == 2, "an optim_step without a gradient counted as a step"
    sampler = raw.result(submissions[-1]()).json["sampling_session_id"]
    assert raw.sample(sampler, 10**18).json["request_id"] == raw.sample(sampler, 10**18).json["request_id"]
    made = raw.post("create_sampling_session", {"session_id": session, "sampling_session_seq_id": 1, "base_model": MODEL})
    again = raw.post("create_sampling_session", {"session_id": session, "sampling_session_seq_id": 1, "base_model": MODEL})
    assert made.json["sampling_session_id"] == again.json["sampling_session_id"] == f"{session}:sample:1"


def test_an_unnamed_save_that_is_repeated_with_a_new_session_number_gives_the_first_result(raw):
    """The SDK uses a new sampling_session_seq_id for each outer retry."""
    model = raw.model(MODEL)

    def save(number):
        return raw.post("save_weights_for_sampler", {"model_id": model, "seq_id": 1, "sampling_session_seq_id": number,
                                                     "type": "save_weights_for_sampler"})

    assert raw.result(save(5)).json["sampling_session_id"] == raw.result(save(6)).json["sampling_session_id"]


def test_results_can_be_taken_again_in_the_form_that_is_asked_for(raw):
    model = raw.model(MODEL)
    submitted = raw.train(model, 1)
    binary = raw.result(submitted, protobuf=True)
    assert raw.result(submitted, protobuf=True).body == binary.body
    output = pb.ForwardBackwardOutput.FromString(binary.body)
    text = raw.result(submitted).json
    assert text["metrics"]["loss:sum"] == pytest.approx(output.metrics["loss:sum"])
    assert all(name.count(":") == 1 for name in output.metrics)
    assert len(text["loss_fn_outputs"]) == 1 and len(text["loss_fn_outputs"][0]["logprobs"]["data"]) == 4


def test_asample_names_its_sequences(raw):
    sampler = raw.sampler(base_model=MODEL).json["sampling_session_id"]
    submitted = raw.sample(sampler, 1, num_samples=3).json
    assert len(set(submitted["sample_sequence_ids"])) == 3


def test_what_is_not_ready_is_held_and_then_408(server):
    """seq_id 2 waits for 1. Many polls wait at the same time, and none delays other requests."""
    client = RawClient(server.url, ALICE)
    model = client.model(MODEL)
    waiting = client.optim(model, 2).json["request_id"]

    def poll(_):
        began = time.monotonic()
        answer = RawClient(server.url, ALICE).retrieve(waiting)
        return answer, time.monotonic() - began

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        polls = [pool.submit(poll, i) for i in range(16)]
        server.wait_until_polls_wait(16)
        began = time.monotonic()
        assert client.get("healthz").status == 200
        assert time.monotonic() - began < 2
        for answer, seconds in (future.result() for future in polls):
            assert answer.status == 408, answer
            assert 20 < seconds < 40
            assert answer.json["type"] == "try_again" and answer.json["request_id"] == waiting
            assert int(answer.headers["Content-Length"]) == len(answer.body)
    assert client.result(client.train(model, 1), protobuf=True).status == 200
    assert step_of(client.result(client.optim(model, 2))) == 1


def test_a_poll_is_answered_when_the_result_comes(server):
    client = RawClient(server.url, ALICE)
    model = client.model(MODEL)
    waiting = client.optim(model, 2).json["request_id"]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        poll = pool.submit(lambda: RawClient(server.url, ALICE).retrieve(waiting))
        server.wait_until_polls_wait(1)
        assert not poll.done()
        client.train(model, 1)
        began = time.monotonic()
        assert poll.result().status == 200
        assert time.monotonic() - began < 5


def test_unload_frees_the_model(raw):
    model = raw.model(MODEL)
    assert raw.result(raw.post("unload_model", {"model_id": model, "type": "unload_model"})).json["model_id"] == model
    submitted = raw.train(model, 1)
    if submitted.status in (200, 202):
        assert "error" in raw.result(submitted, protobuf=True).json
    else:
        assert submitted.status in (400, 404)


def test_healthz_needs_no_key_and_the_clients_telemetry_is_accepted(server, raw):
    nobody = RawClient(server.url, None)
    assert nobody.get("healthz").json["status"] == "ok"
    events = {"events": [{"event": "GENERIC_EVENT", "event_id": "1", "event_session_index": 0, "severity": "INFO",
                          "timestamp": "2026-01-01T00:00:00Z", "event_name": "x", "event_data": {"X-API-Key": ALICE}}],
              "platform": "test", "sdk_version": "0.25.0", "session_id": "any", "process_uuid": "u"}
    assert raw.post("telemetry", events).json == {"status": "accepted"}
    assert ALICE not in server.log


def test_json_forward_backward_of_older_clients(raw):
    model = raw.model(MODEL)
    datum = {"model_input": {"chunks": [{"type": "encoded_text", "tokens": [1, 2, 3]}]},
             "loss_fn_inputs": {"target_tokens": {"data": [2, 3, 4], "dtype": "int64", "shape": [3]},
                                "weights": {"data": [1.0, 1.0, 1.0], "dtype": "float32", "shape": [3]}}}
    body = {"forward_backward_input": {"data": [datum], "loss_fn": "cross_entropy"}, "model_id": model, "seq_id": 1}
    result = raw.result(raw.post("forward_backward", body)).json
    binary = raw.result(raw.train(model, 2, forward_backward(model, 2, (1, 2, 3), (2, 3, 4))), protobuf=True)
    assert result["metrics"]["loss:sum"] == pytest.approx(pb.ForwardBackwardOutput.FromString(binary.body).metrics["loss:sum"], rel=1e-5)


def test_create_session_is_repeatable_by_its_idempotency_key(raw):
    body = {"tags": [], "user_metadata": {}, "sdk_version": "0.25.0", "type": "create_session"}
    first = raw.post("create_session", body, {"X-Idempotency-Key": "k1"})
    again = raw.post("create_session", body, {"X-Idempotency-Key": "k1"})
    other = raw.post("create_session", body, {"X-Idempotency-Key": "k2"})
    assert first.json["session_id"] == again.json["session_id"] != other.json["session_id"]


def test_pipelined_and_kept_alive_requests(raw):
    for _ in range(50):
        assert raw.get("healthz").status == 200


def test_a_hundred_clients_at_once(server):
    def one(number):
        client = RawClient(server.url, ALICE)
        sampler = client.sampler(base_model=MODEL).json["sampling_session_id"]
        return client.result(client.sample(sampler, number), protobuf=True).headers["Content-Type"]

    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        assert set(pool.map(one, range(100))) == {PROTOBUF}
