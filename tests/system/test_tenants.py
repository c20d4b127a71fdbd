"""Two users work at the same time, and neither sees the other's data."""
import threading

import numpy as np
import pytest
from tinker import types

from conftest import service_client
from examples_of_data import datum, logprobs_of, prompt
from raw_client import RawClient
from tuft_server import ALICE, BOB, MODEL

ADAM = types.AdamParams(learning_rate=5e-3)


def finetune(server, key, text, seed, steps=12):
    client = service_client(server, key).create_lora_training_client(base_model=MODEL, rank=8, seed=seed)
    losses = []
    for _ in range(steps):
        passed, stepped = client.forward_backward([datum(text)], "cross_entropy"), client.optim_step(ADAM)
        losses.append(passed.result().metrics["loss:sum"])
        stepped.result()
    logprobs = logprobs_of(client.forward([datum(text)], "cross_entropy").result())[0]
    return losses, logprobs, client.save_weights_and_get_sampling_client().compute_logprobs(prompt(text)).result()


def test_two_users_at_once_get_what_each_gets_alone(server):
    """Invariant 2: a result does not depend on other users in the same pass."""
    jobs = {ALICE: ("alice has a text of her own", 1), BOB: ("and bob another, longer one, for the packing", 2)}
    alone = {key: finetune(server, key, *job) for key, job in jobs.items()}
    together, failures = {}, []

    def work(key):
        try:
            together[key] = finetune(server, key, *jobs[key])
        except BaseException as error:  # noqa: BLE001 - raised by the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(key,)) for key in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    for key in jobs:
        np.testing.assert_allclose(together[key][0], alone[key][0], rtol=1e-4)
        np.testing.assert_allclose(together[key][1], alone[key][1], atol=1e-4)
        np.testing.assert_allclose(together[key][2][1:], alone[key][2][1:], atol=1e-4)


@pytest.fixture(scope="module")
def of_alice(server):
    """One of each object that alice can own."""
    client = RawClient(server.url, ALICE)
    session = client.session()
    model = client.model(MODEL, session)
    assert client.result(client.train(model, 1), protobuf=True).status == 200
    saved = client.result(client.post("save_weights", {"model_id": model, "path": "private", "seq_id": 2, "type": "save_weights"}))
    for_sampler = client.result(client.post("save_weights_for_sampler", {"model_id": model, "path": "private", "seq_id": 3,
                                                                         "type": "save_weights_for_sampler"}))
    sampler = client.sampler(session, model_path=for_sampler.json["path"]).json["sampling_session_id"]
    future = client.sample(sampler, 1)
    return {"session": session, "model": model, "path": saved.json["path"], "sampler_path": for_sampler.json["path"],
            "sampler": sampler, "future": future.json["request_id"]}


def failure_of(client, submitted):
    """Returns (status, message) of a submission that must fail at once or later."""
    if submitted.status not in (200, 202):
        return submitted.status, submitted.detail
    answer = client.result(submitted)
    return answer.status, answer.json.get("error") or answer.json.get("detail")


FOREIGN = {
    "session": lambda c, a: c.post("create_model", {"session_id": a["session"], "model_seq_id": 99, "base_model": MODEL,
                                                    "lora_config": {"rank": 4}, "type": "create_model"}),
    "heartbeat": lambda c, a: c.post("session_heartbeat", {"session_id": a["session"], "type": "session_heartbeat"}),
    "sampler of a session": lambda c, a: c.sampler(a["session"], base_model=MODEL),
    "get_info": lambda c, a: c.post("get_info", {"model_id": a["model"], "type": "get_info"}),
    "forward_backward": lambda c, a: c.train(a["model"], 50),
    "optim_step": lambda c, a: c.optim(a["model"], 50),
    "save_weights": lambda c, a: c.post("save_weights", {"model_id": a["model"], "path": "x", "seq_id": 50, "type": "save_weights"}),
    "save_weights_for_sampler": lambda c, a: c.post("save_weights_for_sampler", {"model_id": a["model"], "path": "x",
                                                                                "seq_id": 50, "type": "save_weights_for_sampler"}),
    "unload_model": lambda c, a: c.post("unload_model", {"model_id": a["model"], "type": "unload_model"}),
    "sampler": lambda c, a: c.sample(a["sampler"], 50),
    "get sampler": lambda c, a: c.get("samplers/" + a["sampler"]),
    "future": lambda c, a: c.retrieve(a["future"]),
    "sample from a checkpoint": lambda c, a: c.sampler(None, model_path=a["sampler_path"]),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_bob_cannot_touch_what_is_alices(name, of_alice, raw_bob):
    status, message = failure_of(raw_bob, FOREIGN[name](raw_bob, of_alice))
    assert status in (200, 403, 404), (status, message)  # 200: a failed future
    assert message


def test_bob_cannot_load_alices_checkpoint(of_alice, raw_bob):
    model = raw_bob.model(MODEL)
    submitted = raw_bob.post("load_weights", {"model_id": model, "seq_id": 1, "path": of_alice["path"], "optimizer": True,
                                              "type": "load_weights"})
    status, message = failure_of(raw_bob, submitted)
    assert status in (200, 403, 404) and message
    assert raw_bob.result(raw_bob.train(model, 2), protobuf=True).status == 200


def test_foreign_and_unknown_look_alike(of_alice, raw_bob):
    """The answer does not show whether an id exists."""
    def answer(model):
        got = raw_bob.post("get_info", {"model_id": model, "type": "get_info"})
        return got.status, got.body.replace(model.encode(), b"ID")

    assert answer(of_alice["model"]) == answer(of_alice["session"][::-1] + ":train:0")


def test_alice_is_untouched_and_her_second_key_is_her(of_alice, server, raw):
    second = RawClient(server.url, "tml-alice-second-key")
    assert second.post("get_info", {"model_id": of_alice["model"], "type": "get_info"}).status == 200
    assert raw.result(raw.train(of_alice["model"], 4), protobuf=True).status == 200
    assert raw.retrieve(of_alice["future"], protobuf=True).status == 200
