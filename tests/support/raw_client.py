"""Speaks the protocol directly: one request at a time, with access to every status and header."""
import http.client
import itertools
import json
import urllib.parse

import numpy as np
from tinker.proto import tinker_public_pb2 as pb

PROTOBUF = "application/x-protobuf"


class Answer:
    def __init__(self, response, body):
        self.status, self.headers, self.body = response.status, response.headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def detail(self):
        return self.json["detail"]

    def __repr__(self):
        return f"{self.status} {self.body[:300]!r}"


class RawClient:
    """Not thread-safe: make one for each thread."""

    def __init__(self, url, api_key, timeout=60):
        parts = urllib.parse.urlsplit(url)
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
        self.api_key = api_key
        self.numbers = itertools.count()

    def request(self, method, path, body=None, headers=None):
        all_headers = {"X-API-Key": self.api_key} if self.api_key else {}
        all_headers.update(headers or {})
        self.connection.request(method, path, body=body, headers=all_headers)
        response = self.connection.getresponse()
        return Answer(response, response.read())

    def get(self, path, **kw):
        return self.request("GET", "/api/v1/" + path, **kw)

    def post(self, path, body, headers=None):
        if not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        return self.request("POST", "/api/v1/" + path, body, {"Content-Type": "application/json", **(headers or {})})

    def post_protobuf(self, path, message, headers=None):
        body = message if isinstance(message, bytes) else message.SerializeToString()
        return self.request("POST", "/api/v1/" + path, body, {"Content-Type": PROTOBUF, **(headers or {})})

    # A good client does the following.

    def session(self):
        answer = self.post("create_session", {"tags": [], "user_metadata": {}, "sdk_version": "0.25.0",
                                              "type": "create_session"})
        assert answer.status in (200, 201), answer
        return answer.json["session_id"]

    def retrieve(self, request_id, protobuf=False):
        return self.post("retrieve_future", {"request_id": request_id, "allow_metadata_only": False},
                         {"Accept": PROTOBUF if protobuf else "application/json"})

    def result(self, submitted, protobuf=False):
        """Returns the final answer of a future, failed or not."""
        assert submitted.status in (200, 202), submitted
        while True:
            answer = self.retrieve(submitted.json["request_id"], protobuf)
            if answer.status != 408:
                return answer

    def model(self, base_model, session=None, rank=4, **lora):
        session = session or self.session()
        answer = self.result(self.post("create_model", {
            "session_id": session, "model_seq_id": next(self.numbers), "base_model": base_model,
            "lora_config": {"rank": rank, **lora}, "type": "create_model"}))
        assert answer.status == 200 and "model_id" in answer.json, answer
        return answer.json["model_id"]

    def sampler(self, session=None, **target):
        return self.post("create_sampling_session", {
            "session_id": session or self.session(), "sampling_session_seq_id": next(self.numbers), **target,
            "type": "create_sampling_session"})

    def sample(self, sampler_id, seq_id, tokens=(1, 2, 3), num_samples=1, **params):
        return self.post("asample", {
            "sampling_session_id": sampler_id, "seq_id": seq_id, "num_samples": num_samples,
            "prompt": {"chunks": [{"type": "encoded_text", "tokens": list(tokens)}]},
            "sampling_params": {"max_tokens": 4, "temperature": 1.0, "top_k": -1, "top_p": 1.0, **params},
            "prompt_logprobs": False, "topk_prompt_logprobs": 0, "type": "sample"})

    def train(self, model_id, seq_id, message=None):
        return self.post_protobuf("forward_backward", message or forward_backward(model_id, seq_id))

    def optim(self, model_id, seq_id, **params):
        return self.post("optim_step", {"adam_params": {"learning_rate": 1e-3, **params}, "model_id": model_id,
                                        "seq_id": seq_id, "type": "optim_step"})


def tensor(array):
    dtype = {"f": pb.DTYPE_FLOAT32, "i": pb.DTYPE_INT64}[array.dtype.kind]
    return pb.Tensor(dense=array.tobytes(), dtype=dtype, shape=list(array.shape))


def forward_backward(model_id, seq_id, tokens=(1, 2, 3, 4), targets=(2, 3, 4, 5), weights=None, loss="cross_entropy",
                     forward_only=False, **more):
    """Makes a request with one datum. `more` holds further loss inputs as lists of floats."""
    weights = [1.0] * len(targets) if weights is None else weights
    inputs = {"target_tokens": tensor(np.asarray(targets, np.int64))}
    if loss == "cross_entropy":
        inputs["weights"] = tensor(np.asarray(weights, np.float32))
    for name, values in more.items():
        inputs[name] = tensor(np.asarray(values, np.float32))
    chunk = pb.Chunk(encoded_text=pb.EncodedTextChunk(tokens=np.asarray(tokens, np.int32).tobytes()))
    return pb.ForwardBackwardRequest(model_id=model_id, seq_id=seq_id, loss_fn=loss, forward_only=forward_only,
                                     data=[pb.Datum(model_input=[chunk], loss_fn_inputs=inputs)])


def long_pass(model, seq_id, datums=400):
    """Returns a pass that takes the tiny model some seconds."""
    message = forward_backward(model, seq_id, tokens=(7,) * 250, targets=(8,) * 250)
    for _ in range(datums - 1):
        message.data.append(message.data[0])
    return message
