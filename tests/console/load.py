"""The load of the demo: a program with the real SDK that fine-tunes an adapter, saves it, and samples from it.

Prints one line of JSON with what it made. With --hold it then keeps its session until its input ends, and trains one
more step for each line that it reads. Runs in .venv, apart from the browser."""

import argparse
import json
import os
import sys
import urllib.parse

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import tinker  # noqa: E402
from tinker import types  # noqa: E402

TEXT = "The harbour master keeps the book of tides, and writes down every ship that comes in at night."


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--hold", action="store_true")
    return parser.parse_args()


class Program:
    def __init__(self, options):
        self.options = options
        self.client = tinker.ServiceClient(base_url=options.url)
        self.trainer = self.client.create_lora_training_client(base_model=options.model, rank=options.rank, seed=1)
        self.tokens = self.trainer.get_tokenizer().encode(TEXT, add_special_tokens=False)

    def datum(self):
        return types.Datum(
            model_input=types.ModelInput.from_ints(self.tokens[:-1]),
            loss_fn_inputs={"target_tokens": self.tokens[1:], "weights": [1.0] * (len(self.tokens) - 1)},
        )

    def train(self, steps):
        """Sends each step before the result of the one before is there, as a good loop does."""
        running = []
        for step in range(steps):
            rate = self.options.learning_rate * min(1.0, (step + 1) / 10, 1.1 - step / max(1, steps))
            running.append(self.trainer.forward_backward([self.datum()] * 4, "cross_entropy"))
            running.append(self.trainer.optim_step(types.AdamParams(learning_rate=rate, grad_clip_norm=1.0)))
            while len(running) > 4:
                running.pop(0).result()
        for one in running:
            one.result()

    def sample(self, sampler, number, tokens=16):
        params = types.SamplingParams(max_tokens=tokens, temperature=1.0)
        prompt = types.ModelInput.from_ints(self.tokens[:12])
        for future in [sampler.sample(prompt, num_samples=1, sampling_params=params) for _ in range(number)]:
            future.result()

    def whole(self):
        self.train(self.options.steps)
        state = self.trainer.save_state("kept").result().path
        weights = self.trainer.save_weights_for_sampler("weights").result().path
        self.sample(self.client.create_sampling_client(model_path=weights), self.options.samples)
        self.sample(self.client.create_sampling_client(base_model=self.options.model), self.options.samples)
        return {
            "session": self.client.holder.get_session_id(),
            "run": urllib.parse.urlsplit(state).netloc,
            "state": state,
            "weights": weights,
        }


def main():
    options = arguments()
    program = Program(options)
    print(json.dumps(program.whole()), flush=True)
    if options.hold:
        for _ in sys.stdin:
            program.train(1)
            print("{}", flush=True)


if __name__ == "__main__":
    main()
    # Ending the interpreter may abort inside the SDK's HTTP client (tests/support/sdk_exit.py).
    os._exit(0)
