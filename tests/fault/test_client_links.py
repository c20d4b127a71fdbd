"""The network between clients and the server fails in the middle of submissions and polls: a client that tries again, as
the SDK does, loses nothing, and nothing is done twice."""
import json
import sys
import time

import pytest

import hosts
import lab_results
import sdk_exit
from cluster import LAB, certificates, one  # noqa: F401
from tuft_server import ALICE, MODEL, LoggedProcess, clean_environment, wait_until

pytestmark = pytest.mark.skipif(hosts.MISSING is not None, reason=str(hosts.MISSING))
FAULTS = {
    "nothing passes": lambda net: net.partition("server", "client"),
    "what the client sends is lost": lambda net: net.drop("client", "server"),
    "what the server sends is lost": lambda net: net.drop("server", "client"),
    "all is reset": lambda net: net.reset("server", "client"),
    "half of the packets are lost": lambda net: (net.drop("client", "server", 2), net.drop("server", "client", 2)),
}
SHORT = ("all is reset", "what the server sends is lost")
STEPS = 24
PROGRAM = """
import json, sys, numpy, tinker
from tinker import types
url, key, model, steps = sys.argv[1:]
tokens = list(b"the answer is tuft")
datum = types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]),
                    loss_fn_inputs={"target_tokens": tokens[1:], "weights": [1.0] * (len(tokens) - 1)})
client = tinker.ServiceClient(base_url=url, api_key=key).create_lora_training_client(base_model=model, rank=4, seed=3)
for step in range(int(steps)):
    passed = client.forward_backward([datum], "cross_entropy")
    stepped = client.optim_step(types.AdamParams(learning_rate=1e-3))
    loss = passed.result().metrics["loss:sum"]
    print(json.dumps({"loss": loss, **stepped.result().metrics}), flush=True)
"""


@pytest.mark.parametrize("fault", FAULTS if LAB else SHORT)
def test_clients_that_try_again_lose_nothing(one, fault):
    with one.load() as load:
        for seconds in (0.5, 2):
            FAULTS[fault](one.net)
            time.sleep(seconds)
            one.net.heal()
            load.await_steps(1)
    assert load.losses == 0 and one.ended() == 0, one.rows()
    lab_results.note("network", f"clients: {fault}, for a half and for two seconds", 2,
                     f"{load}; none lost or done twice")


class Program(LoggedProcess):
    """Trains with the SDK at the host of the clients, and prints a line for each step."""

    def __init__(self, cluster, folder):
        super().__init__()
        (folder / "program.py").write_text(PROGRAM)
        with cluster.net["client"].entered():
            self.spawn_logged([sys.executable, sdk_exit.__file__, folder / "program.py", cluster.url, ALICE, MODEL, str(STEPS)],
                              {**clean_environment(), "TINKER_TELEMETRY": "0"})

    @property
    def steps(self):
        return [json.loads(line) for line in self.lines if line.startswith('{"loss"')]

    def await_steps(self, count):
        def made():
            assert self.process.poll() in (None, 0), self.log
            return len(self.steps) >= count

        wait_until(made, 120, f"the SDK has made {count} steps:\n{self.log}")

    def end(self):
        assert self.process.wait(timeout=60) == 0, self.log
        self.reader.join(timeout=5)
        return self.steps


def test_the_sdk_goes_on_after_faults_of_its_network(one, tmp_path):
    undisturbed = Program(one, tmp_path).end()
    program = Program(one, tmp_path)
    for number, (fault, begin) in enumerate(FAULTS.items()):
        program.await_steps(1 + 4 * number)
        begin(one.net)
        time.sleep(1)
        one.net.heal()
    disturbed = program.end()
    assert [one["optimizer_step"] for one in disturbed] == list(range(1, STEPS + 1))
    for before, after in zip(undisturbed, disturbed, strict=True):
        assert after["loss"] == pytest.approx(before["loss"], rel=1e-4)
        assert after["grad_norm"] == pytest.approx(before["grad_norm"], rel=1e-4)
    lab_results.note("network", "the SDK: each of these faults for a second", len(FAULTS),
                     f"{STEPS} steps, the same losses as without faults")
