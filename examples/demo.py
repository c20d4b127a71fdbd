#!/usr/bin/env python3
"""Fine-tunes an adapter on a few questions and answers through the Tinker SDK and shows what it has learned.

TINKER_API_KEY=tml-... python examples/demo.py --url http://localhost:10610 --model demo"""
import argparse
import collections
import json
import os
import pathlib
import sys
import time

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")

import tinker  # noqa: E402
from tinker import types  # noqa: E402

DATA = pathlib.Path(__file__).parent / "data" / "harbour.jsonl"
IN_FLIGHT = 2  # concurrent steps, so that the server never waits for the client


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default=os.environ.get("TINKER_BASE_URL", "http://localhost:10610"))
    parser.add_argument("--model", required=True, help="a base model of the server")
    parser.add_argument("--data", type=pathlib.Path, default=DATA, help="JSON lines with question and answer")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--check", action="store_true", help="exit with status 1 unless most answers were learned")
    return parser.parse_args()


class Example:
    def __init__(self, tokenizer, question, answer):
        self.question, self.answer = question, answer
        self.prompt = tokenizer.encode(f"Q: {question}\nA:", add_special_tokens=False)
        self.completion = tokenizer.encode(f" {answer}\n", add_special_tokens=False)

    def datum(self):
        tokens = self.prompt + self.completion
        weights = [0.0] * (len(self.prompt) - 1) + [1.0] * len(self.completion)
        return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]),
                           loss_fn_inputs={"target_tokens": tokens[1:], "weights": weights})


def ask(sampler, tokenizer, examples):
    """Returns the greedy answer to each question; all requests are sent at once."""
    futures = [sampler.sample(types.ModelInput.from_ints(example.prompt), num_samples=1,
                              sampling_params=types.SamplingParams(max_tokens=len(example.completion) + 8,
                                                                   temperature=0.0, stop=["\n"]))
               for example in examples]
    return [printable(tokenizer.decode(future.result().sequences[0].tokens)) for future in futures]


def printable(text):
    return "".join(c if c.isprintable() else "·" for c in text.strip())


def show(title, examples, answers):
    print(f"\n{title}")
    for example, answer in zip(examples, answers):
        print(f"  Q: {example.question}\n  A: {answer[:70]}")


class Progress:
    """Shows progress: one line that is updated on a terminal, occasional lines elsewhere."""

    def __init__(self, steps):
        self.steps, self.began, self.tokens = steps, time.monotonic(), 0
        self.live = sys.stdout.isatty()

    def update(self, step, loss, tokens):
        self.tokens += tokens
        rate = self.tokens / (time.monotonic() - self.began)
        line = f"  step {step:>4}/{self.steps}   loss {loss:8.4f} per token   {rate:8.0f} tokens/s"
        if self.live:
            print("\r" + line, end="\n" if step == self.steps else "", flush=True)
        elif step % 10 == 0 or step == self.steps:
            print(line, flush=True)


def train(trainer, examples, options):
    data = [example.datum() for example in examples]
    trained = sum(len(example.completion) for example in examples)
    tokens = sum(len(example.prompt) + len(example.completion) - 1 for example in examples)
    progress, running = Progress(options.steps), collections.deque()

    def finish_one():
        step, passed, stepped = running.popleft()
        loss = passed.result().metrics["loss:sum"] / trained
        stepped.result()
        progress.update(step, loss, tokens)
        return loss

    for step in range(1, options.steps + 1):
        rate = options.learning_rate * min(1.0, step / 10, 0.1 + (options.steps - step) / options.steps)
        running.append((step, trainer.forward_backward(data, "cross_entropy"),
                        trainer.optim_step(types.AdamParams(learning_rate=rate, grad_clip_norm=1.0))))
        if len(running) > IN_FLIGHT:
            finish_one()
    while running:
        loss = finish_one()
    return loss


def main():
    options = arguments()
    client = tinker.ServiceClient(base_url=options.url)
    trainer = client.create_lora_training_client(base_model=options.model, rank=options.rank, seed=1)
    tokenizer = trainer.get_tokenizer()
    rows = [json.loads(line) for line in options.data.read_text().splitlines() if line.strip()]
    examples = [Example(tokenizer, row["question"], row["answer"]) for row in rows]
    shown = examples[:3]

    base = client.create_sampling_client(base_model=options.model)
    show(f"Before: what {options.model} answers", shown, ask(base, tokenizer, shown))

    print(f"\nFine-tuning a LoRA adapter of rank {options.rank} on {len(examples)} questions and answers")
    train(trainer, examples, options)

    sampler = trainer.save_weights_and_get_sampling_client()
    answers = ask(sampler, tokenizer, examples)
    show("After: the same questions", shown, answers[:len(shown)])
    learned = sum(answer == example.answer for answer, example in zip(answers, examples))
    print(f"\n{learned} of {len(examples)} answers were learned word for word.")
    saved = trainer.save_state("demo", overwrite=True).result().path
    print(f"Saved with its optimizer as {saved}")
    return 1 if options.check and learned < 0.75 * len(examples) else 0


if __name__ == "__main__":
    status = main()
    # Everything is done. Ending the interpreter may abort inside the SDK's HTTP client (tests/support/sdk_exit.py).
    sys.stdout.flush()
    os._exit(status)
