"""A server whose workers a launcher starts."""
import pytest
import tinker
from examples_of_data import datum
from joining import certificates, joined_server, rows  # noqa: F401
from tinker import types
from tuft_server import ALICE, MODEL, wait_until


@pytest.fixture
def served(tmp_path, certificates):
    """Returns a server, and the flags of a worker that joins it."""
    server, port, model = joined_server(tmp_path, certificates)
    server.start()
    yield server, ["--join", f"localhost:{port}", "--join-token-file", tmp_path / "token", "--join-ca",
                   certificates / "ca.pem", "--model-path", model, "--model-name", MODEL]
    server.stop()


def train_with_the_sdk(server):
    """Returns the number of the first step of a new run."""
    service = tinker.ServiceClient(base_url=server.url, api_key=ALICE)
    client = service.create_lora_training_client(base_model=MODEL, rank=4)
    client.forward_backward([datum("the answer is tuft")], "cross_entropy").result()
    return client.optim_step(types.AdamParams(learning_rate=1e-3)).result().metrics["optimizer_step"]


def row(server, state):
    """Returns the only worker in this state."""
    (found,) = [one for one in rows(server) if one["state"] == state]
    return found


def left(server, pid):
    """Returns whether this worker drained. A standby has nothing to save and just closes its connection."""
    return [one["reason"] for one in rows(server) if one["pid"] == pid] == ["left, as it was told to"]


def await_counts(server, seconds, **wanted):
    """Waits until so many workers are in each state, and none in another."""
    def counts():
        found = [one["state"] for one in rows(server)]
        return {state: found.count(state) for state in found}

    wait_until(lambda: counts() == wanted, seconds, f"the workers are {wanted}, not {rows(server)}\n{server.log}")
