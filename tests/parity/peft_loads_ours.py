#!/usr/bin/env python3
"""A checkpoint that the engine writes loads in PEFT and gives the same logits there.

    peft_loads_ours.py --writer build/release/tests/tuft_parity_writer

Needs torch, transformers and peft; exit code 77 (skipped) where they are not installed. TUFT_PEFT_PYTHON names an
interpreter that has them.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77
LOGITS_ERROR = 1e-4
DATA = pathlib.Path(__file__).resolve().parent / "data"


def import_peft():
    python = os.environ.pop("TUFT_PEFT_PYTHON", None)
    if python:
        os.execv(python, [python, *sys.argv])
    try:
        import peft
        import torch
        import transformers
    except ImportError as error:
        print(f"skipped: {error}; TUFT_PEFT_PYTHON can name an interpreter that has it")
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
    for case in sorted(path for path in DATA.iterdir() if path.is_dir()):
        difference = largest_difference(case, writer, *modules)
        failed |= not difference <= LOGITS_ERROR
        print(f"{case.name}: largest difference of a logit {difference:.1e}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
