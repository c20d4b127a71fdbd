"""Clients that train and sample over HTTP without an SDK, whose own work would take processor time from the server."""
import array
import http.client
import json
import time

import server
from suites import api_ingest

JSON, PROTOBUF = "application/json", "application/x-protobuf"
ADAM = {"learning_rate": 1e-4}


class Refused(RuntimeError):
    """The server did not take a request, or an operation failed."""


class Connection:
    """One connection, for one thread."""

    IDLE_SECONDS = 60  # then it is opened again: the server closes what is idle for two minutes

    def __init__(self, running):
        self.http = http.client.HTTPConnection(running.url.removeprefix("http://"), timeout=120)
        self.used = time.monotonic()

    def post(self, route, body, kind=JSON):
        if time.monotonic() - self.used > self.IDLE_SECONDS:
            self.http.close()
        self.used = time.monotonic()
        headers = {"X-API-Key": server.KEY, "Content-Type": kind, "Accept": JSON}
        self.http.request("POST", "/api/v1/" + route, body if kind == PROTOBUF else json.dumps(body).encode(), headers)
        reply = self.http.getresponse()
        text = reply.read()
        if reply.status not in (200, 201, 202, 408):
            raise Refused(f"{route}: {reply.status} {text[:300]}")
        return json.loads(text) | {"pending": reply.status == 408}

    def result(self, submitted):
        """Waits for the end of an operation."""
        while True:
            answer = self.post("retrieve_future", {"request_id": submitted["request_id"]})
            if "error" in answer:
                raise Refused(f"an operation failed: {answer['error']}")
            if not answer["pending"] and answer.get("type") != "try_again":
                return answer

    def close(self):
        self.http.close()


def datum(tokens):
    """Returns a datum of a request, in protobuf: each token is to predict the next one."""
    count = len(tokens) - 1
    inputs = {"target_tokens": api_ingest.tensor(2, array.array("q", tokens[1:])),
              "weights": api_ingest.tensor(1, array.array("f", [1.0] * count))}
    field = api_ingest.field
    chunk = field(1, 2, field(1, 2, array.array("i", tokens[:-1]).tobytes()))
    return field(3, 2, field(1, 2, chunk) + b"".join(
        field(2, 2, field(1, 2, name.encode()) + field(2, 2, value)) for name, value in inputs.items()))


def tokens(count, seed, vocabulary=256):
    """Returns pseudo-random tokens, the same ones for the same seed."""
    drawn, state = [], seed + 1
    for _ in range(count):
        state = (state * 75 + 74) % 65537
        drawn.append(state % vocabulary)
    return drawn


class Run(Connection):
    """A training run. Its data are one datum of `length` tokens."""

    def __init__(self, running, number=0, length=8, rank=8):
        super().__init__(running)
        self.model, self.seq, self.length = running.create_model(running.create_session(), number, rank), 0, length
        self.data = datum(tokens(length + 1, number))

    def submit(self, route, body, kind=JSON):
        """A request that is refused has not used its number up."""
        submitted = self.post(route, body, kind)
        self.seq += 1
        return submitted

    def submit_pass(self, forward_only=False):
        field, varint = api_ingest.field, api_ingest.varint
        body = (field(1, 2, self.model.encode()) + field(2, 0, varint(self.seq + 1)) + self.data +
                field(4, 2, b"cross_entropy") + field(6, 0, varint(int(forward_only))))
        return self.submit("forward_backward", body, PROTOBUF)

    def submit_step(self):
        return self.submit("optim_step", {"model_id": self.model, "seq_id": self.seq + 1, "adam_params": ADAM,
                                          "type": "optim_step"})

    def step(self):
        """Trains by one step: both of its operations are in flight at the same time."""
        submitted = [self.submit_pass(), self.submit_step()]
        for one in submitted:
            self.result(one)

    def save(self, name):
        self.result(self.submit("save_weights", {"model_id": self.model, "seq_id": self.seq + 1, "path": name,
                                                 "type": "save_weights"}))


class Sampler(Connection):
    """A sampling session on the base model: a new one, or that of another connection."""

    def __init__(self, running, number=0, session=None):
        super().__init__(running)
        self.number, self.seq = number, 0
        self.id = session or self.post("create_sampling_session", {
            "session_id": running.create_session(), "sampling_session_seq_id": 0, "base_model": "bench",
            "type": "create_sampling_session"})["sampling_session_id"]

    def sample(self, prompt, new_tokens):
        """Returns the number of tokens that were drawn: with an empty list of stops, no token ends a sequence early."""
        # Connections that share a session must not repeat each other's numbers.
        self.seq += 1
        answer = self.result(self.post("asample", {
            "sampling_session_id": self.id, "seq_id": self.number * 1_000_000 + self.seq, "num_samples": 1,
            "prompt": {"chunks": [{"type": "encoded_text", "tokens": prompt}]},
            "sampling_params": {"max_tokens": new_tokens, "temperature": 1.0, "top_k": -1, "top_p": 1.0, "stop": []},
            "prompt_logprobs": False, "topk_prompt_logprobs": 0, "type": "sample"}))
        return sum(len(sequence["tokens"]) for sequence in answer["sequences"])
