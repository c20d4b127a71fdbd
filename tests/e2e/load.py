"""The load on the back ends: the demo, every operation of the SDK, and mistakes of clients."""

import contextlib
import itertools
import os
import pathlib
import signal
import subprocess
import sys

import tinker
from tinker import types

from raw_client import RawClient, forward_backward
from tuft_server import ALICE, MODEL, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = list(b"The harbour master keeps the book of tides.")


def demo(url, steps):
    """Runs the program of `./dev demo` against a running server."""
    environment = {**os.environ, "TINKER_API_KEY": ALICE}
    subprocess.run(
        [
            sys.executable,
            ROOT / "examples/demo.py",
            "--url",
            url,
            "--model",
            MODEL,
            "--steps",
            str(steps),
            "--rank",
            "8",
        ],
        env=environment,
        check=True,
        timeout=300,
        stdout=subprocess.DEVNULL,
    )


class Client:
    """A user with a run and samplers. round() uses every operation once."""

    def __init__(self, url):
        self.url = url
        self.service = tinker.ServiceClient(base_url=url, api_key=ALICE)
        self.trainer = self.service.create_lora_training_client(base_model=MODEL, rank=8, seed=1)
        self.datum = types.Datum(
            model_input=types.ModelInput.from_ints(TEXT[:-1]),
            loss_fn_inputs={"target_tokens": TEXT[1:], "weights": [1.0] * (len(TEXT) - 1)},
        )
        self.number = 0
        self.raw = RawClient(url, ALICE)  # for a sample of a token that does not exist
        self.sampler = self.raw.sampler(base_model=MODEL).json["sampling_session_id"]

    def round(self):
        self.number += 1
        steps = [
            (
                self.trainer.forward_backward([self.datum] * 4, "cross_entropy"),
                self.trainer.optim_step(types.AdamParams(learning_rate=1e-3, grad_clip_norm=0.01)),
            )
            for _ in range(3)
        ]
        for passed, stepped in steps:
            passed.result()
            stepped.result()
        self.trainer.forward([self.datum], "cross_entropy").result()
        state = self.trainer.save_state(f"state-{self.number}").result().path
        self.trainer.load_state_with_optimizer(state).result()
        weights = self.trainer.save_weights_for_sampler(f"weights-{self.number}").result().path
        samplers = [
            self.service.create_sampling_client(model_path=weights),
            self.service.create_sampling_client(base_model=MODEL),
        ]
        params = types.SamplingParams(max_tokens=24, temperature=1.0)
        futures = [
            sampler.sample(types.ModelInput.from_ints(TEXT[:20]), num_samples=2, sampling_params=params)
            for sampler in samplers
            for _ in range(4)
        ]
        for future in futures:
            future.result()
        failed = self.raw.result(self.raw.sample(self.sampler, self.number, tokens=[10**6]))
        assert "error" in failed.json

    def mistakes(self):
        """Causes errors of a client, sends an operation too early, and sends invalid headers."""
        raw = RawClient(self.url, ALICE)
        run = raw.model(MODEL)
        failed = raw.result(raw.train(run, 1, forward_backward(run, 1, loss="no_such_loss")))
        assert "error" in failed.json
        late = raw.optim(run, 3)
        raw.result(raw.optim(run, 2))
        raw.result(late)
        raw.post("create_session", {}, {"X-API-Key": "tml-stranger"})
        raw.post("create_session", b"{no json", {"traceparent": "00-nonsense"})
        raw.post(
            "telemetry",
            {
                "session_id": raw.session(),
                "platform": "test",
                "sdk_version": "0.25.0",
                "events": [
                    {
                        "event": "GENERIC_EVENT",
                        "event_id": "e1",
                        "event_session_index": 0,
                        "severity": "WARNING",
                        "timestamp": "2026-01-01T00:00:00Z",
                        "event_name": "test",
                        "event_data": {},
                    }
                ],
            },
        )
        raw.result(raw.post("unload_model", {"model_id": run, "type": "unload_model"}))


def keep_busy(url, seen):
    """Samples, wave after wave, until `seen()`. The prompts are longer than a block of the KV cache (64 positions)."""
    raw = RawClient(url, ALICE)
    sampler = raw.sampler(base_model=MODEL).json["sampling_session_id"]
    numbers = itertools.count()

    def wave():
        answers = [raw.sample(sampler, next(numbers), TEXT * 2, num_samples=8, max_tokens=150) for _ in range(20)]
        for answer in answers:
            assert "error" not in raw.result(answer).json
        return seen()

    wait_until(wave, 120, "the load is seen")


def lose_worker(server):
    """Kills a worker that has work; the server starts another one. Returns the sampler that was affected."""
    raw = RawClient(server.url, ALICE)
    sampler = raw.sampler(base_model=MODEL).json["sampling_session_id"]
    (worker,) = server.worker_pids()
    os.kill(worker, signal.SIGSTOP)  # it cannot finish before it is killed
    answers = [raw.sample(sampler, i, num_samples=8, max_tokens=200) for i in range(20)]
    os.kill(worker, signal.SIGKILL)
    failed = [answer for answer in map(raw.result, answers) if "error" in answer.json]
    assert failed, "no sample noticed that the worker was killed"
    wait_until(lambda: [pid for pid in server.worker_pids() if pid != worker], 60, "a new worker is there")

    def samples_again():
        with contextlib.suppress(AssertionError):
            return (
                "error" not in raw.result(raw.sample(raw.sampler(base_model=MODEL).json["sampling_session_id"], 0)).json
            )

    wait_until(samples_again, 60, "the new worker samples")
    return sampler
