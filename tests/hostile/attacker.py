"""One tenant's attacks, each on one thing that tenants share. They run in a process of their own, so that the victim's
client measures the server and not its own interpreter."""
import contextlib
import http.client
import itertools
import json
import multiprocessing
import os
import random
import socket
import threading
import urllib.parse

import zstandard

from raw_client import RawClient, forward_backward
from tuft_server import ALICE, MODEL

THREADS = 4
LAB = bool(os.environ.get("TUFT_LAB"))
CONNECTIONS, EMPTIES = (200, 300_000) if LAB else (50, 20_000)
CLOSED = (OSError, http.client.HTTPException)


class Attacker:
    """What one thread of an attack knows. Each attack is a generator: it prepares itself, and then each step of it is a
    turn, until the attack ends."""

    def __init__(self, url):
        self.url, self.chance = url, random.Random(7)
        self.client = RawClient(url, ALICE, timeout=30)
        self.session = self.client.session()
        self.numbers = itertools.count(1)

    def connect(self):
        parts = urllib.parse.urlsplit(self.url)
        return socket.create_connection((parts.hostname, parts.port), timeout=30)

    def post_zstd(self, route, text):
        self.client.request("POST", f"/api/v1/{route}", zstandard.compress(text.encode()),
                            {"Content-Type": "application/json", "Content-Encoding": "zstd"})

    def sampler(self):
        return self.client.sampler(self.session, base_model=MODEL).json["sampling_session_id"]

    def sample(self, sampler, **more):
        """Submits a sample. Returns its answer."""
        return self.client.sample(sampler, next(self.numbers), **more)

    def finish(self):
        """Ends what an attack has left, so that the next one is measured alone."""
        with contextlib.suppress(*CLOSED):
            RawClient(self.url, ALICE, timeout=30).post(f"sessions/{self.session}/finish", {})

    # -- the attacks

    def unfinished_heads(self):
        with contextlib.ExitStack() as stack:
            for _ in range(CONNECTIONS):
                stack.enter_context(self.connect()).sendall(b"GET /api/v1/healthz HTTP/1.1\r\nX-Long: " + b"x" * 50_000)
                yield
            while True:
                with self.connect() as more:
                    more.sendall(b"POST /api/v1/create_session HTTP/1.1\r\nContent-Le")
                    yield

    def slow_readers(self):
        with contextlib.ExitStack() as stack:
            while True:
                for _ in range(CONNECTIONS):
                    one = stack.enter_context(self.connect())
                    one.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n" * 20)
                    yield
                stack.close()

    def many_requests(self):
        """Many connections, each with many cheap requests at once."""
        requests = f"GET /api/v1/get_server_capabilities HTTP/1.1\r\nHost: a\r\nX-API-Key: {ALICE}\r\n\r\n".encode() * 20
        with contextlib.ExitStack() as stack:
            connections = []
            for _ in range(CONNECTIONS):
                connections.append(stack.enter_context(self.connect()))
                connections[-1].sendall(requests)
                yield
            for one in itertools.cycle(connections):
                one.recv(1 << 20)
                one.sendall(requests)
                yield

    def decoding(self):
        empties = "[" + ",".join(["{}"] * EMPTIES) + "]"
        body = json.dumps({"model_id": "a", "seq_id": 1, "forward_backward_input": {"data": 0, "loss_fn": "cross_entropy"}})
        while True:
            self.post_zstd("forward_backward", body.replace('"data": 0', '"data": ' + empties))
            yield

    def memory(self):
        """Fills the room for operations that wait for a missing one."""
        model = self.client.model(MODEL, self.session)
        message = forward_backward(model, 2, tokens=(1,) * 60_000, targets=(2,) * 60_000)
        for number in itertools.count(2):
            message.seq_id = number
            self.client.post_protobuf("forward_backward", message)
            yield

    def futures(self):
        model = self.client.model(MODEL, self.session)
        for number in itertools.count(2):
            self.client.optim(model, number)
            yield

    def sampling_places(self):
        sampler = self.sampler()
        while True:
            self.sample(sampler, num_samples=16, max_tokens=100)
            yield

    def kv_cache(self):
        sampler = self.sampler()
        while True:
            self.sample(sampler, tokens=[self.chance.randrange(256) for _ in range(200)], max_tokens=50, num_samples=4)
            yield

    def adapters(self):
        while True:
            model = self.client.model(MODEL, self.session, rank=32)
            self.client.result(self.client.post("save_weights_for_sampler", {
                "model_id": model, "seq_id": 1, "sampling_session_seq_id": next(self.numbers) + 10**6,
                "type": "save_weights_for_sampler"}))
            self.client.result(self.client.post("unload_model", {"model_id": model, "type": "unload_model"}))
            yield

    def loads(self):
        """Operations of several runs that are no passes, without waiting for their results."""
        models = [self.client.model(MODEL, self.session, rank=32) for _ in range(4)]
        saved = self.client.result(self.client.post("save_weights", {
            "model_id": models[0], "path": "loaded", "seq_id": 1, "overwrite": True, "type": "save_weights"}))
        for model in itertools.cycle(models):
            self.client.post("load_weights", {
                "model_id": model, "path": saved.json["path"], "optimizer": True, "type": "load_weights"})
            yield

    def disk(self):
        model = self.client.model(MODEL, self.session, rank=32)
        for number in itertools.count(1):
            self.client.result(self.client.post("save_weights", {
                "model_id": model, "path": "same", "seq_id": number, "overwrite": True, "type": "save_weights"}))
            yield

    def store(self):
        for number in itertools.count(1):
            self.client.request("PUT", f"/api/v1/sessions/{self.session}/project",
                                json.dumps({"project_id": f"p{number}"}), {"Content-Type": "application/json"})
            yield

    def telemetry(self):
        """Requests without a key, each with a trace of its own."""
        stranger = RawClient(self.url, None)
        while True:
            trace = f"{self.chance.getrandbits(128):032x}"
            stranger.get("sessions", headers={"traceparent": f"00-{trace}-00000000000000ff-01"})
            yield

    def archives(self):
        model = self.client.model(MODEL, self.session, rank=32)
        self.client.result(self.client.post("save_weights", {
            "model_id": model, "path": "big", "seq_id": 1, "type": "save_weights"}))
        with contextlib.ExitStack() as stack:
            while True:
                for _ in range(CONNECTIONS):
                    answer = self.client.get(f"training_runs/{model}/checkpoints/weights/big/archive")
                    target = urllib.parse.urlsplit(answer.headers["Location"] or answer.json["url"])
                    one = stack.enter_context(self.connect())
                    one.sendall(f"GET {target.path}?{target.query} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
                    yield
                stack.close()


ATTACKS = ("unfinished_heads", "slow_readers", "many_requests", "decoding", "memory", "futures", "sampling_places",
           "kv_cache", "adapters", "loads", "disk", "store", "telemetry", "archives")


def attack(name, url, stop, turns, failures):
    """One thread of an attack. A closed connection is an answer: it goes on with new ones."""
    while not stop.is_set():
        try:
            attacker = Attacker(url)
            with contextlib.closing(getattr(attacker, name)()) as steps, contextlib.ExitStack() as at_end:
                at_end.callback(attacker.finish)
                for _ in steps:
                    with turns.get_lock():
                        turns.value += 1
                    if stop.is_set():
                        return
        except CLOSED:
            continue
        except Exception as error:  # such as a quota that is reached; a fresh attacker goes on
            failures.append(repr(error)[:300])


def serve(pipe, turns):
    """The attacker's process: begins and ends attacks."""
    while True:
        name, url = pipe.recv()
        if name is None:
            return
        stop, failures = threading.Event(), []
        threads = [threading.Thread(target=attack, args=(name, url, stop, turns, failures)) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        pipe.recv()
        stop.set()
        for thread in threads:
            thread.join()
        pipe.send(failures[:3])


class AttackerProcess:
    def __init__(self):
        context = multiprocessing.get_context("spawn")
        self.turns = context.Value("q", 0)
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other, self.turns), daemon=True)
        self.process.start()

    @contextlib.contextmanager
    def attacking(self, name, url):
        self.turns.value = 0
        self.pipe.send((name, url))
        try:
            yield
        finally:
            self.pipe.send("stop")
            self.failures = self.pipe.recv()

    def end(self):
        self.pipe.send((None, None))
        self.process.join(30)
