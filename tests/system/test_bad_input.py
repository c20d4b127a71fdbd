"""Sends wrong requests over raw HTTP. Each gets its status and a JSON message, and the next good request works."""
import json
import pathlib

import numpy as np
import pytest
import zstandard

from raw_client import PROTOBUF, RawClient, forward_backward, pb, tensor
from tuft_server import ALICE, MODEL

JSON = "application/json"


@pytest.fixture(scope="module")
def of_alice(server):
    client = RawClient(server.url, ALICE)
    session = client.session()
    model = client.model(MODEL, session)
    sampler = client.sampler(session, base_model=MODEL).json["sampling_session_id"]
    return {"session": session, "model": model, "sampler": sampler}


@pytest.fixture(autouse=True)
def the_next_good_request_works(server, of_alice):
    yield
    client = RawClient(server.url, ALICE)
    assert client.get("healthz").status == 200
    answer = client.result(client.sample(of_alice["sampler"], int.from_bytes(np.random.bytes(5), "little")), protobuf=True)
    assert answer.status == 200 and answer.headers["Content-Type"] == PROTOBUF
    assert len(pb.SampleResponse.FromString(answer.body).sequences) == 1


def is_clear(answer):
    """Checks that the body is JSON with a message, has its length, and shows nothing internal."""
    assert answer.headers["Content-Type"].startswith(JSON), answer.headers
    assert int(answer.headers["Content-Length"]) == len(answer.body) > 0
    assert len(answer.detail) > 8
    for word in ("/tmp", ".cc", "std::", "Traceback", ALICE):
        assert word not in answer.detail
    return True


# name: (statuses, call(client, ids)). A submission may also be accepted and its future fail.
HTTP_CASES = {
    "no key": ({401}, lambda c, a: keyless(c).post("create_session", {})),
    "empty key": ({401}, lambda c, a: c.post("create_session", {}, {"X-API-Key": ""})),
    "unknown key": ({401, 403}, lambda c, a: c.post("create_session", {}, {"X-API-Key": "tml-nobody"})),
    "unknown key and a broken body": ({401, 403}, lambda c, a: c.post("create_session", "{", {"X-API-Key": "tml-nobody"})),
    "unknown path": ({404}, lambda c, a: c.get("nothing/here")),
    "unknown path outside of the API": ({404}, lambda c, a: c.request("GET", "/etc/passwd")),
    "wrong method": ({405}, lambda c, a: c.get("create_session")),
    "broken JSON": ({400, 422}, lambda c, a: c.post("create_session", "{\"tags\": [")),
    "empty body": ({400, 422}, lambda c, a: c.post("create_session", "")),
    "JSON of another shape": ({400, 422}, lambda c, a: c.post("create_session", [1, 2, 3])),
    "a text where a number belongs": ({400, 422}, lambda c, a: c.post("create_model", {
        "session_id": a["session"], "model_seq_id": "first", "base_model": MODEL, "lora_config": {"rank": 4}})),
    "deeply nested JSON": ({400, 422}, lambda c, a: c.post("create_session", "[" * 50_000)),
    "not UTF-8": ({400, 422}, lambda c, a: c.post("create_session", b'{"tags": ["\xff\xfe"]}')),
    "unknown content type": ({415}, lambda c, a: c.request("POST", "/api/v1/forward_backward", b"x",
                                                          {"Content-Type": "text/plain"})),
    "protobuf where JSON belongs": ({415, 422}, lambda c, a: c.post_protobuf("optim_step", forward_backward(a["model"], 1))),
    "unknown encoding": ({400, 415}, lambda c, a: c.post_protobuf("forward_backward", forward_backward(a["model"], 1),
                                                                 {"Content-Encoding": "br"})),
    "no zstd at all": ({400}, lambda c, a: c.post_protobuf("forward_backward", b"not a frame", {"Content-Encoding": "zstd"})),
    "truncated zstd": ({400}, lambda c, a: c.post_protobuf(
        "forward_backward", zstandard.compress(forward_backward(a["model"], 1).SerializeToString())[:-4],
        {"Content-Encoding": "zstd"})),
    "zstd bomb": ({413}, lambda c, a: c.post_protobuf("forward_backward", zstandard.compress(bytes(512 << 20)),
                                                     {"Content-Encoding": "zstd"})),
    "zstd bomb that hides its size": ({413}, lambda c, a: c.post_protobuf(
        "forward_backward", unsized_bomb(), {"Content-Encoding": "zstd"})),
    "truncated protobuf": ({400, 422}, lambda c, a: c.post_protobuf(
        "forward_backward", forward_backward(a["model"], 1).SerializeToString()[:-3])),
    "garbage for protobuf": ({400, 422}, lambda c, a: c.post_protobuf("forward_backward", b"\xff" * 64)),
    "unknown future": ({404}, lambda c, a: c.retrieve("no-such-future")),
    "unknown sampler": ({404}, lambda c, a: c.get("samplers/nobody:sample:1")),
    "sample from an unknown sampler": ({404}, lambda c, a: c.sample("nobody:sample:1", 1)),
    "unknown session": ({403, 404}, lambda c, a: c.sampler("nobody", base_model=MODEL)),
    "heartbeat of an unknown session": ({403, 404}, lambda c, a: c.post("session_heartbeat", {"session_id": "nobody"})),
    "info of an unknown model": ({404}, lambda c, a: c.post("get_info", {"model_id": "nobody:train:0"})),
    "sampler of an unknown base model": ({400, 404}, lambda c, a: c.sampler(a["session"], base_model="gpt-17")),
    "sampler of nothing": ({400, 404, 422}, lambda c, a: c.sampler(a["session"])),
    "model_path that is no tinker path": ({400, 422}, lambda c, a: c.sampler(a["session"], model_path="/etc/passwd")),
    "traversal in a run id": ({400, 404, 422}, lambda c, a: c.sampler(a["session"], model_path="tinker://../weights/x")),
    "traversal in a checkpoint name": ({400, 404, 422}, lambda c, a: c.sampler(
        a["session"], model_path=f"tinker://{a['model']}/sampler_weights/..")),
    "an encoded slash in an id": ({400, 404}, lambda c, a: c.get("samplers/..%2f..%2fetc%2fpasswd")),
}

FUTURE_CASES = {
    "unknown base model": lambda c, a: c.post("create_model", {
        "session_id": a["session"], "model_seq_id": 900, "base_model": "gpt-17", "lora_config": {"rank": 4}}),
    "rank 0": lambda c, a: c.post("create_model", {
        "session_id": a["session"], "model_seq_id": 901, "base_model": MODEL, "lora_config": {"rank": 0}}),
    "rank over max_lora_rank": lambda c, a: c.post("create_model", {
        "session_id": a["session"], "model_seq_id": 902, "base_model": MODEL, "lora_config": {"rank": 33}}),
    "nothing to train": lambda c, a: c.post("create_model", {
        "session_id": a["session"], "model_seq_id": 903, "base_model": MODEL,
        "lora_config": {"rank": 4, "train_attn": False, "train_mlp": False, "train_unembed": False}}),
    "num_samples 0": lambda c, a: c.sample(a["sampler"], 1, num_samples=0),
    "temperature below 0": lambda c, a: c.sample(a["sampler"], 2, temperature=-1.0),
    "top_p over 1": lambda c, a: c.sample(a["sampler"], 3, top_p=1.5),
    "max_tokens 0": lambda c, a: c.sample(a["sampler"], 4, max_tokens=0),
    "empty prompt": lambda c, a: c.sample(a["sampler"], 5, tokens=()),
    "token outside of the vocabulary": lambda c, a: c.sample(a["sampler"], 6, tokens=(1, 10_000_000)),
    "negative token": lambda c, a: c.sample(a["sampler"], 7, tokens=(1, -5)),
    "prompt over the context": lambda c, a: c.sample(a["sampler"], 8, tokens=(1,) * 400),
    "more of the top than the server gives": lambda c, a: c.post("asample", {
        "sampling_session_id": a["sampler"], "seq_id": 10, "num_samples": 1, "sampling_params": {"max_tokens": 1},
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": [1]}]}, "topk_prompt_logprobs": 100_000}),
    "an image": lambda c, a: c.post("asample", {
        "sampling_session_id": a["sampler"], "seq_id": 9, "num_samples": 1, "sampling_params": {"max_tokens": 1},
        "prompt": {"chunks": [{"type": "image", "data": "AAAA", "format": "png"}]}}),
}

# Each case uses a new run. It has seq_id 1, a good pass then has seq_id 2: a failed operation uses up its number.
RUN_CASES = {
    "no targets": lambda c, m: c.train(m, 1, pb.ForwardBackwardRequest(
        model_id=m, seq_id=1, loss_fn="cross_entropy", data=[pb.Datum(model_input=forward_backward(m, 1).data[0].model_input)])),
    "targets of another length": lambda c, m: c.train(m, 1, forward_backward(m, 1, targets=(2, 3))),
    "target outside of the vocabulary": lambda c, m: c.train(m, 1, forward_backward(m, 1, targets=(2, 3, 4, 99_999_999))),
    "input outside of the vocabulary": lambda c, m: c.train(m, 1, forward_backward(m, 1, tokens=(1, 2, 3, 99_999_999))),
    "datum over the context": lambda c, m: c.train(m, 1, forward_backward(m, 1, tokens=(1,) * 400, targets=(1,) * 400)),
    "unknown loss": lambda c, m: c.train(m, 1, forward_backward(m, 1, loss="hinge")),
    "a temperature of 0": lambda c, m: c.train(m, 1, with_config(m, temperature=0.0)),
    "a key that the loss does not have": lambda c, m: c.train(m, 1, with_config(m, beta=1.0)),
    "weights of another length": lambda c, m: c.train(m, 1, forward_backward(m, 1, weights=[1.0] * 3)),
    "weights that are no numbers": lambda c, m: c.train(m, 1, forward_backward(m, 1, weights=[1.0, float("nan"), 1.0, 1.0])),
    "targets that are no whole numbers": lambda c, m: c.train(m, 1, with_target(m, dtype=pb.DTYPE_FLOAT32, shape=[8])),
    "importance_sampling without logprobs": lambda c, m: c.train(m, 1, forward_backward(
        m, 1, loss="importance_sampling", advantages=[1.0] * 4)),
    "a datum without tokens": lambda c, m: c.train(m, 1, forward_backward(m, 1, tokens=(), targets=())),
    "a chunk without content": lambda c, m: c.train(m, 1, pb.ForwardBackwardRequest(
        model_id=m, seq_id=1, loss_fn="cross_entropy", data=[pb.Datum(model_input=[pb.Chunk()])])),
    "tokens of half an int": lambda c, m: c.train(m, 1, pb.ForwardBackwardRequest(
        model_id=m, seq_id=1, loss_fn="cross_entropy",
        data=[pb.Datum(model_input=[pb.Chunk(encoded_text=pb.EncodedTextChunk(tokens=b"\1\0\0"))])])),
    "tensor bytes that do not match its shape": lambda c, m: c.train(m, 1, with_target(m, shape=[7])),
    "tensor of a huge shape": lambda c, m: c.train(m, 1, with_target(m, shape=[1 << 40, 1 << 40])),
    "tensor of a negative shape": lambda c, m: c.train(m, 1, with_target(m, shape=[-4])),
    "tensor of no type": lambda c, m: c.train(m, 1, with_target(m, dtype=0)),
    "sparse tensor with a row pointer out of range": lambda c, m: c.train(m, 1, sparse_target(m, crow=[0, 9, 1, 1, 1])),
    "sparse tensor with a column out of range": lambda c, m: c.train(m, 1, sparse_target(m, col=[99])),
    "negative learning rate": lambda c, m: c.optim(m, 1, learning_rate=-1.0),
    "beta of 2": lambda c, m: c.optim(m, 1, beta1=2.0),
    "checkpoint name with a slash": lambda c, m: save(c, m, "a/b"),
    "checkpoint name that goes up": lambda c, m: save(c, m, ".."),
    "checkpoint name that goes far up": lambda c, m: save(c, m, "../../../../tmp/tuft_escape"),
    "absolute checkpoint name": lambda c, m: save(c, m, "/tmp/tuft_escape"),
    "checkpoint name with a zero byte": lambda c, m: save(c, m, "a\0b"),
    "checkpoint name of a kilobyte": lambda c, m: save(c, m, "n" * 1024),
    "sampler checkpoint name that goes up": lambda c, m: c.post("save_weights_for_sampler", {
        "model_id": m, "path": "../up", "seq_id": 1, "type": "save_weights_for_sampler"}),
    "lifetime of 0 seconds": lambda c, m: save(c, m, "kept", ttl_seconds=0),
    "overwrite that is no boolean": lambda c, m: save(c, m, "kept", overwrite="yes"),
    "learning rate that is no number": lambda c, m: c.post("optim_step", {
        "model_id": m, "seq_id": 1, "adam_params": {"learning_rate": "fast"}, "type": "optim_step"}),
    "an operation of a newer SDK": lambda c, m: c.post("sharpen_weights", {"model_id": m, "seq_id": 1}),
    "learning rate of NaN, which is null in JSON": lambda c, m: c.post("optim_step", {
        "model_id": m, "seq_id": 1, "adam_params": {"learning_rate": None}, "type": "optim_step"}),
    "optim_step without parameters": lambda c, m: c.post("optim_step", {"model_id": m, "seq_id": 1, "type": "optim_step"}),
    "field that nobody knows": lambda c, m: c.post("optim_step", {
        "model_id": m, "seq_id": 1, "adam_params": {"momentum": 0.9}, "type": "optim_step"}),
    "loss input that the loss does not use": lambda c, m: c.train(m, 1, forward_backward(m, 1, advantages=[1.0] * 4)),
    "text in the loss's configuration": lambda c, m: c.post("forward_backward", {
        "model_id": m, "seq_id": 1, "forward_backward_input": {
            "data": [{"model_input": {"chunks": [{"type": "encoded_text", "tokens": [1]}]},
                      "loss_fn_inputs": {"target_tokens": {"data": [2], "dtype": "int64"}}}],
            "loss_fn": "cross_entropy", "loss_fn_config": {"mode": "x"}}}),
    "negative sampling_session_seq_id": lambda c, m: c.post("save_weights_for_sampler", {
        "model_id": m, "sampling_session_seq_id": -1, "seq_id": 1, "type": "save_weights_for_sampler"}),
    "load without a path": lambda c, m: c.post("load_weights", {"model_id": m, "seq_id": 1, "type": "load_weights"}),
    "JSON pass without a batch": lambda c, m: c.post("forward_backward", {"model_id": m, "seq_id": 1}),
    "JSON forward without a batch": lambda c, m: c.post("forward", {"model_id": m, "seq_id": 1}),
    "load of no path": lambda c, m: load(c, m, "nonsense"),
    "load of a server path": lambda c, m: load(c, m, "/etc"),
    "load of what is not there": lambda c, m: load(c, m, f"tinker://{m}/weights/never-saved"),
    "load that goes up": lambda c, m: load(c, m, f"tinker://{m}/weights/../../x"),
}


def keyless(client):
    return RawClient(f"http://{client.connection.host}:{client.connection.port}", None)


def unsized_bomb():
    compressor = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    block = bytes(1 << 20)
    return b"".join(compressor.compress(block) for _ in range(512)) + compressor.flush()


def with_target(model, **changes):
    message = forward_backward(model, 1)
    target = message.data[0].loss_fn_inputs["target_tokens"]
    if "shape" in changes:
        del target.shape[:]
        target.shape.extend(changes.pop("shape"))
    for name, value in changes.items():
        setattr(target, name, value)
    return message


def with_config(model, **config):
    message = forward_backward(model, 1)
    message.loss_fn_config.update(config)
    return message


def sparse_target(model, crow=(0, 1, 1, 1, 1), col=(0,)):
    message = forward_backward(model, 1)
    inputs = message.data[0].loss_fn_inputs
    inputs["target_tokens"].CopyFrom(pb.Tensor(dtype=pb.DTYPE_INT64, shape=[4, 8], sparse_csr=pb.SparseCsr(
        values=np.asarray([3] * len(col), np.int64).tobytes(), crow_indices=np.asarray(crow, np.int64).tobytes(),
        col_indices=np.asarray(col, np.int64).tobytes())))
    inputs["weights"].CopyFrom(tensor(np.ones((4, 8), np.float32)))
    return message


def save(client, model, name, **more):
    return client.post("save_weights", {"model_id": model, "path": name, "seq_id": 1, "type": "save_weights", **more})


def load(client, model, path):
    return client.post("load_weights", {"model_id": model, "seq_id": 1, "path": path, "optimizer": False, "type": "load_weights"})


@pytest.mark.parametrize("name", HTTP_CASES)
def test_a_wrong_request_has_its_status(name, raw, of_alice):
    statuses, call = HTTP_CASES[name]
    answer = call(raw, of_alice)
    assert answer.status in statuses, answer
    assert is_clear(answer)


def check_failed(client, submitted):
    if submitted.status not in (200, 202):
        assert submitted.status in (400, 404, 422), submitted
        return is_clear(submitted)
    answer = client.result(submitted, protobuf=True)
    assert answer.status == 200 and answer.headers["Content-Type"].startswith(JSON), answer
    assert answer.json["category"] == "user", answer
    assert len(answer.json["error"]) > 8
    for word in ("/tmp", ".cc", "std::", "tuft_home"):
        assert word not in answer.json["error"]
    return True


@pytest.mark.parametrize("name", FUTURE_CASES)
def test_a_wrong_submission_fails_as_the_users_fault(name, raw, of_alice):
    assert check_failed(raw, FUTURE_CASES[name](raw, of_alice))


@pytest.mark.parametrize("name", RUN_CASES)
def test_a_wrong_operation_fails_and_the_run_goes_on(name, raw):
    model = raw.model(MODEL)
    assert check_failed(raw, RUN_CASES[name](raw, model))
    answer = raw.result(raw.train(model, 2), protobuf=True)
    assert answer.headers["Content-Type"] == PROTOBUF, answer
    assert not pathlib.Path("/tmp/tuft_escape").exists()


def test_a_wrong_datum_is_named_and_leaves_no_gradient(raw):
    def grad_norm(with_wrong):
        model = raw.model(MODEL, seed=3)
        seq_id = 1
        if with_wrong:
            message = forward_backward(model, 1)
            message.data.append(forward_backward(model, 1, tokens=(5, 6), targets=(6, 7), weights=[1.0]).data[0])
            answer = raw.result(raw.train(model, 1, message), protobuf=True)
            assert "data[1]" in answer.json["error"] and "weights" in answer.json["error"], answer
            seq_id = 2
        raw.result(raw.train(model, seq_id), protobuf=True)
        return raw.result(raw.optim(model, seq_id + 1)).json["metrics"]["grad_norm"]

    assert grad_norm(True) == grad_norm(False)


def test_a_body_over_the_limit_is_refused(raw, server):
    answer = raw.request("POST", "/api/v1/forward_backward", None,
                         {"Content-Type": PROTOBUF, "Content-Length": str(1 << 40), "Connection": "close"})
    assert answer.status == 413 and is_clear(answer)
    raw.connection.close()


def test_zstd_and_plain_give_the_same(raw):
    model = raw.model(MODEL)
    plain = forward_backward(model, 1, forward_only=True)
    first = raw.result(raw.train(model, 1, plain), protobuf=True)
    plain.seq_id = 2
    packed = zstandard.compress(plain.SerializeToString())
    second = raw.result(raw.post_protobuf("forward_backward", packed, {"Content-Encoding": "zstd"}), protobuf=True)
    assert pb.ForwardBackwardOutput.FromString(first.body) == pb.ForwardBackwardOutput.FromString(second.body)


@pytest.mark.parametrize("damage", ["cut", "header", "empty", "gone", "foreign shapes"])
def test_a_corrupt_checkpoint_is_refused_by_name(damage, raw, server):
    model = raw.model(MODEL)
    assert raw.result(raw.train(model, 1), protobuf=True).status == 200
    name = "hurt-" + damage.replace(" ", "-")
    saved = raw.result(raw.post("save_weights", {"model_id": model, "path": name, "seq_id": 2, "type": "save_weights"}))
    path = saved.json["path"]
    files = [file for file in pathlib.Path(server.home).rglob("adapter_model.safetensors") if name in str(file)]
    assert len(files) == 1
    content = files[0].read_bytes()
    if damage == "gone":
        files[0].unlink()
    else:
        files[0].write_bytes({"cut": content[:len(content) // 2], "header": b"\xff" * 8 + content[8:], "empty": b"",
                              "foreign shapes": foreign(content)}[damage])
    answer = raw.result(raw.post("load_weights", {"model_id": model, "seq_id": 3, "path": path, "optimizer": False,
                                                  "type": "load_weights"}))
    message = answer.json["error"]
    assert any(word in message for word in ("checkpoint", "safetensors", "adapter")), message
    assert str(server.home) not in message
    files[0].write_bytes(content)
    assert raw.result(raw.train(model, 4), protobuf=True).headers["Content-Type"] == PROTOBUF
    server.expected_errors += ["checkpoint", "safetensors"]


def foreign(content):
    """Returns the same file with the dimensions of each tensor swapped in the header."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + size])
    for name, entry in header.items():
        if name != "__metadata__":
            entry["shape"].reverse()
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content[8 + size:]
