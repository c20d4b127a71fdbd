#!/usr/bin/env python3
"""Builds the fuzz targets (preset `fuzz`), runs each for its share of the time from its corpus, adds the executions to
fuzz/executions.json, and keeps the inputs that reach new code, minimised, in fuzz/corpus."""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
import lab_results

BUILD = ROOT / "build/fuzz"
COUNTS = ROOT / "fuzz/executions.json"
INPUT_BYTES_MAX = 1 << 16
KEPT_BYTES_MAX = 4096  # larger inputs do not go into the repository


def build():
    environment = {**os.environ, "CCACHE_BASEDIR": str(ROOT), "CCACHE_NOHASHDIR": "1"}
    if not (BUILD / "build.ninja").exists():
        subprocess.run(["cmake", "--preset", "fuzz"], cwd=ROOT, check=True, env=environment)
    targets = [f"fuzz_{one}" for one in targets_of()]
    subprocess.run(["cmake", "--build", BUILD, "--target", *targets], cwd=ROOT, check=True, env=environment)


def targets_of():
    return re.findall(r"^tuft_fuzz_target\((\w+)", (ROOT / "fuzz/CMakeLists.txt").read_text(), re.M)


def run(target, seconds):
    """Returns (executions, what happened)."""
    corpus = ROOT / "fuzz/corpus" / target
    with tempfile.TemporaryDirectory() as directory:
        found = pathlib.Path(directory) / "found"
        found.mkdir()
        program = BUILD / f"fuzz/fuzz_{target}"
        ended = subprocess.run([program, f"-max_total_time={seconds}", f"-max_len={INPUT_BYTES_MAX}", "-print_final_stats=1",
                                f"-artifact_prefix={ROOT}/build/fuzz/{target}-", found, corpus],
                               capture_output=True, text=True, errors="replace")
        counts = re.findall(r"stat::number_of_executed_units:\s*(\d+)", ended.stderr) or re.findall(r"^#(\d+)", ended.stderr, re.M)
        if ended.returncode != 0:
            print(ended.stderr[-4000:])
            return int(counts[-1]) if counts else 0, "FAILED: the input is in build/fuzz"
        subprocess.run([program, "-merge=1", corpus, found], capture_output=True)
    for one in corpus.iterdir():
        if one.stat().st_size > KEPT_BYTES_MAX and re.fullmatch(r"[0-9a-f]{40}", one.name):
            one.unlink()
    return int(counts[-1]) if counts else 0, "nothing found"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="for all targets together")
    options = parser.parse_args()
    build()
    totals = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    failed = False
    for target in targets_of():
        executions, said = run(target, max(1, round(options.minutes * 60 / len(targets_of()))))
        totals[target] = totals.get(target, 0) + executions
        COUNTS.write_text(json.dumps(totals, indent=2, sort_keys=True) + "\n")
        print(f"{target}: {executions} executions, {said}; {totals[target]} in all runs", flush=True)
        lab_results.note("fuzz", target, executions, f"{said}; {totals[target]:.1e} executions in all runs")
        failed = failed or said.startswith("FAILED")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
