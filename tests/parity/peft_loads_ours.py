#!/usr/bin/env python3
"""Checks that PEFT loads a checkpoint written by the engine and computes the same logits.

    peft_loads_ours.py --writer build/release/tests/tuft_parity_writer

Needs torch, transformers and peft; the exit code is 77 (skipped) if they are not installed. Uses the interpreter that
TUFT_PEFT_PYTHON names, else the one that `./dev bench --peers` has made."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77
LOGITS_ERROR = 1e-4
PEERS = pathlib.Path(__file__).resolve().parents[2] / "build" / "peers" / "transformers" / "bin" / "python"
DATA = pathlib.Path(__file__).resolve().parent / "data"


def import_peft():
    python = os.environ.get("TUFT_PEFT_PYTHON", str(PEERS) if PEERS.exists() else "")
    if python:
        os.environ["TUFT_PEFT_PYTHON"] = ""  # for the interpreter that replaces this one
        os.execv(python, [python, *sys.argv])
    try:
        import peft
        import torch
        import transformers
    except ImportError as error:
        print(f"skipped: {error}; ./dev bench --peers makes an interpreter that has it, or TUFT_PEFT_PYTHON names one")
        sys.exit(SKIPPED)
    return torch, transformers, peft


def largest_difference(case, writer, torch, transformers, peft):
    from safetensors.torch import load_file
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([writer, case.name, directory], check=True)
        model = transformers.AutoModelForCausalLM.from_pretrained(case / "model", dtype=torch.float32)
        model = peft.PeftModel.from_pretrained(model, f"{directory}/checkpoint").eval()
        ours = load_file(f"{directory}/logits.safetensors")["logits"]
    reference = json.loads((case / "reference.json").read_text())
    tokens = reference["data"][reference["logits_of"]]["tokens"]
    with torch.no_grad():
        theirs = model(input_ids=torch.tensor([tokens])).logits[0].flatten()
        with model.disable_adapter():
            base = model(input_ids=torch.tensor([tokens])).logits[0].flatten()
    assert (theirs - base).abs().max() > 0.1, "PEFT ignored the adapter"
    return float((theirs - ours).abs().max())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--writer", required=True)
    writer = parser.parse_args().writer
    modules = import_peft()
    failed = False
    for case in sorted(path for path in DATA.iterdir() if (path / "adapter").is_dir()):
        difference = largest_difference(case, writer, *modules)
        failed |= not difference <= LOGITS_ERROR
        print(f"{case.name}: largest difference of a logit {difference:.1e}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
