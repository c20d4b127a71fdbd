#!/usr/bin/env python3
"""Makes tests/parity/data/*/curve.json: the losses while Transformers + PEFT learn eight phrases of pig latin by
heart.

Run it by hand after make_parity_data.py; it needs the same packages. The file holds the loss of each of thirty steps
from a float64 model: the mean over the tokens of the answers. The curve depends on all parts of training (losses,
gradients, clipping, moments), so it shows small errors that the test of each part would tolerate."""
import json
import math

import torch
from make_parity_data import CASES, ROOT, gradients, load_model, logprobs_of

PHRASES = ["banana split", "quantum physics", "donut shop", "pickle jar", "space exploration", "rubber duck", "coding wizard",
           "open water"]
LETTERS = " -abcdefghijklmnopqrstuvwxyz:\n"
FIRST_ID = 3  # after the special tokens
STEPS = 30
ADAM = {"learning_rate": 5e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.0, "grad_clip_norm": 100.0}


def pig_latin(word):
    start = next(i for i, letter in enumerate(word) if letter in "aeiou")
    return f"{word[start:]}-{word[:start] or 'w'}ay"


def datum(phrase):
    """Only the answer has a loss, as in supervised fine-tuning."""
    prompt = phrase + ":"
    text = prompt + " ".join(map(pig_latin, phrase.split())) + "\n"
    tokens = [FIRST_ID + LETTERS.index(letter) for letter in text]
    weights = [float(i + 1 >= len(prompt)) for i in range(len(tokens) - 1)]
    return dict(tokens=tokens[:-1], targets=tokens[1:], weights=weights)


def cross_entropy(model, entry):
    return -(logprobs_of(model, entry["tokens"], entry["targets"]) * torch.tensor(entry["weights"]).double()).sum()


def run(directory, data, dtype):
    model = load_model(directory / "model", directory / "adapter", dtype)
    parameters = [parameter for name, parameter in model.named_parameters() if "lora_" in name]
    optimizer = torch.optim.AdamW(parameters, lr=ADAM["learning_rate"], betas=(ADAM["beta1"], ADAM["beta2"]),
                                  eps=ADAM["eps"], weight_decay=ADAM["weight_decay"])
    count = sum(sum(entry["weights"]) for entry in data)
    losses = []
    for _ in range(STEPS):
        losses.append(gradients(model, data, cross_entropy)[0] / count)
        torch.nn.utils.clip_grad_norm_(parameters, ADAM["grad_clip_norm"])
        optimizer.step()
    return losses


def main():
    torch.set_num_threads(1)
    data = [datum(phrase) for phrase in PHRASES]
    for name in CASES:
        directory = ROOT / name
        losses, single = (run(directory, data, dtype) for dtype in (torch.float64, torch.float32))
        # The largest relative difference between PyTorch's own float32 and float64 runs.
        error = max(abs(got / want - 1) for got, want in zip(single, losses))
        curve = dict(adam=ADAM, data=data, losses=losses, f32_worst_relative=error)
        (directory / "curve.json").write_text(json.dumps(curve, sort_keys=True) + "\n")
        print(f"{name}: {losses[0]:.3f} {losses[9]:.3f} {losses[19]:.4f} {losses[-1]:.5f}, f32 {error:.1e}")
        assert math.isfinite(error)


if __name__ == "__main__":
    main()
