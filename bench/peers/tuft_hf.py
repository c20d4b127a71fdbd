#!/usr/bin/env python3
"""TuFT's own training back end (tuft.backends.hf_training_model.HFTrainingModel, without Ray) with the JSON protocol of
tuft_engine_runner. Needs TuFT (pip install tuft) and tinker; the exit code of `--check` tells whether they are
installed."""
import argparse
import asyncio
import copy
import os
import pathlib
import tempfile
import time
import types as python_types
import warnings

import lines


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--check", action="store_true")
    return parser.parse_args()


OPTIONS = parse()
os.environ.setdefault("OMP_NUM_THREADS", str(OPTIONS.threads))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.simplefilter("ignore")
import importlib.metadata  # noqa: E402

import torch  # noqa: E402
from tinker import types  # noqa: E402
from tuft.backends.hf_training_model import HFTrainingModel  # noqa: E402
from tuft.config import ModelConfig  # noqa: E402

if not torch.cuda.is_available():
    # TuFT calls it for every micro-batch. It raises an error without a GPU, where it would do nothing.
    torch.cuda.reset_peak_memory_stats = lambda *_: None

ADAM = types.AdamParams(learning_rate=1e-4, beta1=0.9, beta2=0.95, eps=1e-12)


class Runner:
    def __init__(self, options):
        torch.set_num_threads(options.threads)
        self.config = ModelConfig(model_name="bench", model_path=pathlib.Path(options.model), max_model_len=8192)
        self.default_micro_batch = self.config.micro_batch_size
        self.model = HFTrainingModel(self.config)
        self.vocab = self.model.model.config.vocab_size
        self.event_loop, self.sampler, self.threads = asyncio.new_event_loop(), None, options.threads

    def run(self, call):
        return self.event_loop.run_until_complete(call)

    def hello(self, _):
        names = ("tuft", "torch", "transformers", "peft")
        return {"program": "TuFT, HFTrainingModel", "threads": torch.get_num_threads(),
                "default_micro_batch": self.default_micro_batch,
                "versions": {name: importlib.metadata.version(name) for name in names}}

    def adapt(self, rank, count):
        """Makes adapters "run-0", "run-1", ... with B and moments of zero. An existing one keeps its memory, so that no
        first step is measured."""
        held = self.model.adapter_optimizer
        for number in range(count, len(held)):
            self.run(self.model.remove_adapter(f"run-{number}"))
        for number in range(len(held), count):
            self.run(self.model.create_adapter(f"run-{number}", types.LoraConfig(rank=rank)))
        with torch.no_grad():
            for name, parameter in self.model.model.named_parameters():
                if "lora_B" in name:
                    parameter.zero_()
        for optimizer in held.values():
            optimizer.zero_grad()
            lines.forget_moments(optimizer)

    def data(self, lengths):
        stream, data = lines.Tokens(self.vocab), []
        for length in lengths:
            tokens = stream.take(length + 1)
            inputs = {"target_tokens": types.TensorData(data=tokens[1:], dtype="int64", shape=[length]),
                      "weights": types.TensorData(data=lines.loss_weights(length), dtype="float32", shape=[length])}
            data.append(types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs))
        return data

    def forward_backward(self, number, data):
        output = self.run(self.model.forward(data, f"run-{number}", "cross_entropy", None, backward=True))
        return output.metrics["loss:sum"]

    def train_tenants(self, asked):
        self.config.micro_batch_size = asked["micro_batch"] or self.default_micro_batch
        tenants = asked["tenants"]
        self.adapt(asked["rank"], len(tenants))
        data = [self.data(lengths) for lengths in tenants]
        first_loss, watch = 0.0, lines.Stopwatch()
        for step in range(asked["steps"]):
            for number, of_tenant in enumerate(data):
                loss = self.forward_backward(number, of_tenant)
                self.run(self.model.optim_step(ADAM, f"run-{number}"))
                first_loss += loss if step == 0 else 0.0
        return {**watch.stop(), "tokens": asked["steps"] * sum(map(sum, tenants)), "loss": first_loss}

    def fairness(self, asked):
        self.config.micro_batch_size = asked["micro_batch"] or self.default_micro_batch
        self.adapt(asked["rank"], asked["light"] + 1)
        return lines.serve_fifo(asked, lambda tenant, lengths: self.forward_backward(tenant, self.data(lengths)))

    def publish(self, asked):
        """save_weights_for_sampler writes files, and the sampler loads them. TuFT's sampler is vLLM, which does not run
        here; a second model of Transformers + PEFT replaces it."""
        self.config.micro_batch_size = self.default_micro_batch
        self.adapt(asked["rank"], 1)
        self.forward_backward(0, self.data([asked["length"]]))
        if self.sampler is None:
            self.sampler = copy.deepcopy(self.model.model).eval()
        prompt = torch.tensor([lines.Tokens(self.vocab).take(asked["prompt"])])
        with tempfile.TemporaryDirectory() as directory:
            record = python_types.SimpleNamespace(adapter_path=pathlib.Path(directory) / "adapter")
            watch = lines.Stopwatch()
            self.run(self.model.optim_step(ADAM, "run-0"))
            stepped = time.monotonic()
            self.run(self.model.save_state("run-0", record, optimizer=False))
            saved = time.monotonic()
            self.sampler.load_adapter(str(record.adapter_path), adapter_name="published")
            loaded = time.monotonic()
            self.sampler.set_adapter("published")
            with torch.inference_mode():
                self.sampler(input_ids=prompt, use_cache=True, logits_to_keep=1).logits[:, -1].argmax(-1).item()
            answer = watch.stop()
        self.sampler.set_adapter("default")
        self.sampler.delete_adapter("published")
        return {**answer, "optim_step_ms": 1e3 * (stepped - watch.wall), "save_ms": 1e3 * (saved - stepped),
                "load_ms": 1e3 * (loaded - saved), "publish_ms": 1e3 * (loaded - stepped),
                "first_token_ms": 1e3 * (watch.wall + answer["seconds"] - loaded)}


def main():
    if OPTIONS.check:
        return
    runner = Runner(OPTIONS)
    lines.serve({"hello": runner.hello, "train_tenants": runner.train_tenants, "fairness": runner.fairness,
                 "publish": runner.publish})


if __name__ == "__main__":
    main()
