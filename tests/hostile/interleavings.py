#!/usr/bin/env python3
"""Runs the tests of interleavings (base/testing/interleaving.h) with many seeds: clients, threads and files in
every order that a seed makes. A failure names its seed."""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
import lab_results

TESTS = pathlib.Path(os.environ.get("TUFT_BIN_DIR", ROOT / "build/release/bin")).parent / "tests"
PROGRAMS = {"tuft_worker_test": "engine, file and page threads of the worker",
            "tuft_control_test": "clients, store, worker and kills of the server"}
SEEDS_AT_FIRST = 300


def run(program, seeds):
    """Returns (steps, seconds, what failed)."""
    begin = time.monotonic()
    ended = subprocess.run([TESTS / program, "--gtest_filter=*Interleavings.*"], capture_output=True, text=True,
                           env={**os.environ, "TUFT_INTERLEAVINGS": str(seeds)})
    steps = re.search(r"^interleavings: \d+ seeds, (\d+) steps", ended.stdout, re.M)
    if ended.returncode != 0 or not steps:
        print(ended.stdout[-4000:], ended.stderr[-4000:])
        seed = re.search(r"TUFT_INTERLEAVING_SEED=(\d+)", ended.stdout)
        return 0, time.monotonic() - begin, f"FAILED: seed {seed[1]}" if seed else f"FAILED: status {ended.returncode}"
    return int(steps[1]), time.monotonic() - begin, ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="for all programs together")
    options = parser.parse_args()
    failed = False
    for program, tried in PROGRAMS.items():
        seeds = SEEDS_AT_FIRST
        steps, seconds, failure = run(program, seeds)
        if not failure:
            seeds = max(seeds, round(seeds * options.minutes * 60 / len(PROGRAMS) / seconds))
            steps, seconds, failure = run(program, seeds)
        said = failure or f"nothing failed in {steps:,} steps"
        print(f"{program}: {seeds} seeds, {seconds:.0f} s, {said}", flush=True)
        lab_results.note("interleavings", tried, seeds, said)
        failed = failed or bool(failure)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
