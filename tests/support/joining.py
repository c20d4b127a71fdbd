"""A server that workers join, and what tests of it share."""
import os
import pathlib

import pytest
import tuft_server
from certificates import make_certificates
from raw_client import RawClient
from tuft_server import ALICE, BIN, MODEL, LoggedProcess, TuftServer, wait_until

TOKEN = "a token of sufficient length"
LEASE = 3


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("tls") / "of_server")


class Worker(LoggedProcess):
    """A `tuft-worker --join`."""

    def __init__(self, port, certificates, model, token=TOKEN, env=None, arguments=(), server="localhost"):
        super().__init__()
        token_file = pathlib.Path(certificates) / f"token-{os.getpid()}-{id(self)}"
        token_file.write_text(token + "\n")
        self.spawn_logged(
            [BIN / "tuft-worker", "--join", f"{server}:{port}", "--join-token-file", token_file, "--join-ca",
             certificates / "ca.pem", "--model-path", model, "--model-name", MODEL, "--threads", "1", *arguments],
            {**tuft_server.clean_environment(), **(env or {})})

    def says(self, text, seconds=30):
        wait_until(lambda: text in self.log, seconds, f"the worker says {text!r}; it said:\n{self.log}")

    def signal(self, number):
        self.process.send_signal(number)

    def end(self):
        self.process.kill()
        self.process.wait()


def joined_server(folder, certificates, workers=1, host="127.0.0.1", lease=LEASE, keep=60, replicate=False, **changes):
    """Returns a server with a joined base model, which is not started, its port for workers, and the model's directory.
    `workers` serve at a time; they reach it at the address `host`, and keep their adapters for `keep` seconds while they
    are not connected."""
    folder.mkdir(exist_ok=True)
    model = tuft_server.init_model(folder / "model", "--size", "tiny")
    (folder / "token").write_text(TOKEN + "\n")
    os.chmod(folder / "token", 0o600)
    join = {"host": host, "port": tuft_server.free_port(), "certificate": str(certificates / "server.pem"),
            "private_key": str(certificates / "server.key"), "token_file": str(folder / "token"), "lease_seconds": lease,
            "keep_seconds": keep}
    config = tuft_server.configuration(model, join=join, persistence={"mode": "FILE"}, console={"operators": ["alice"]},
                                       model={"worker": "joined", "workers": workers, "replicate": replicate}, **changes)
    return TuftServer(folder / "home", config), join["port"], model


def rows(server):
    return RawClient(server.url, ALICE).get("observe/workers").json["workers"]


def states(server):
    return [row["state"] for row in rows(server)]


def await_states(server, *wanted, seconds=30):
    wait_until(lambda: states(server) == list(wanted), seconds, f"the workers are {wanted}, not {states(server)}")


class Trainer:
    """A run of Alice's. Every operation uses the next seq_id up."""

    def __init__(self, server):
        self.client = RawClient(server.url, ALICE)
        self.model = self.client.model(MODEL)
        self.seq = 0

    def send(self, route, **body):
        self.seq += 1
        return self.client.result(self.client.post(route, {"model_id": self.model, "seq_id": self.seq, **body})).json

    def step(self):
        """Trains by one step. Returns its number, or the error."""
        self.seq += 1
        passed = self.client.result(self.client.train(self.model, self.seq), protobuf=True)
        if passed.headers["Content-Type"] != "application/x-protobuf":
            return passed.json["error"]
        return self.send("optim_step", adam_params={"learning_rate": 1e-3}, type="optim_step")["metrics"]["optimizer_step"]

    def loss(self):
        self.seq += 1
        answer = self.client.result(self.client.train(self.model, self.seq))
        assert answer.status == 200 and "metrics" in answer.json, answer
        return answer.json["metrics"]["loss:sum"]

    def save(self, name):
        assert "path" in self.send("save_weights", path=name, type="save_weights")
