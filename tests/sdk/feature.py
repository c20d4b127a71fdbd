"""What the features of tests/sdk share: the registry, the client, and small helpers.

Imported in the environment of any SDK version, so nothing here may need a class that a version lacks.
"""
import inspect
import os
import pathlib
import subprocess
import sys
import tempfile

import tinker
from tinker import types

import sdk_exit
from examples_of_data import datum

TEXT = "the answer is tuft"
ADAM = types.AdamParams(learning_rate=5e-3)
FEATURES = []


class NotAsked(Exception):
    """This SDK does not have the call or the argument."""


def feature(group, name):
    def keep(function):
        FEATURES.append((group, name, function))
        return function
    return keep


def method(owner, name, *arguments):
    """Returns the method of an SDK object. Raises NotAsked if it, or one of the named arguments, does not exist."""
    found = getattr(owner, name, None)
    if found is None:
        raise NotAsked(name)
    parameters = inspect.signature(found).parameters
    if any(one.kind == one.VAR_KEYWORD for one in parameters.values()):  # a wrapper that stands for a client
        owners = (tinker.ServiceClient, tinker.TrainingClient, tinker.SamplingClient)
        real = next((getattr(one, name) for one in owners if hasattr(one, name)), found)
        parameters = inspect.signature(real).parameters
    missing = [one for one in arguments if one not in parameters]
    if missing:
        raise NotAsked(f"{name}({', '.join(missing)})")
    return found


def class_of(name):
    found = getattr(types, name, None) or getattr(tinker, name, None)
    if found is None:
        raise NotAsked(name)
    return found


class Client:
    """What the features share. Objects are made when they are first needed."""

    def __init__(self, url, key, model, cli):
        self.url, self.key, self.model, self.cli = url, key, model, cli
        self.service = tinker.ServiceClient(base_url=url, api_key=key)
        self.made = {}

    def once(self, name, make):
        if name not in self.made:
            self.made[name] = make()
        return self.made[name]

    @property
    def training(self):
        return self.once("training", lambda: self.new_run())

    @property
    def sampling(self):
        return self.once("sampling", lambda: self.service.create_sampling_client(base_model=self.model))

    @property
    def rest(self):
        return self.once("rest", self.service.create_rest_client)

    @property
    def saved(self):
        """Returns the path of a training checkpoint of `training`."""
        return self.once("saved", lambda: self.training.save_state("shared").result().path)

    def new_run(self, **arguments):
        return self.service.create_lora_training_client(base_model=self.model, rank=8, seed=1, **arguments)

    def run_id(self):
        return self.saved.split("/")[2]

    def session_id(self):
        return self.run_id().split(":")[0]

    def command(self, *arguments):
        """Runs the CLI of this version and returns its output."""
        environment = {**os.environ, "TINKER_BASE_URL": self.url, "TINKER_API_KEY": self.key, "TINKER_TELEMETRY": "0"}
        script = pathlib.Path(sdk_exit.__file__)
        run = subprocess.run([sys.executable, script, self.cli, *arguments], capture_output=True, text=True, timeout=120,
                             env=environment, cwd=tempfile.mkdtemp())
        said = run.stdout + run.stderr
        if run.returncode == 2 and ("No such command" in said or "No such option" in said):
            raise NotAsked(arguments[0])
        if run.returncode != 0:
            raise RuntimeError(f"tinker {' '.join(arguments)} ended with {run.returncode}: {said[-600:]}")
        return run.stdout


def train(run, steps, adam=ADAM, loss="cross_entropy", data=None):
    losses = []
    for _ in range(steps):
        passed = run.forward_backward(data or [datum(TEXT)], loss)
        run.optim_step(adam).result()
        losses.append(passed.result().metrics["loss:sum"])
    return losses


def learns(losses):
    assert losses[-1] < 0.9 * losses[0], losses
