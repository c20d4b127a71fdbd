#!/usr/bin/env python3
"""Builds the fuzz targets (preset `fuzz`), and runs again and again the one with the fewest executions, one on each processor.
Adds the executions to fuzz/executions.json. The inputs that reach new code are kept, minimised, in fuzz/found, an archive for each
target; those of fuzz/corpus were written by people, and every build runs them. Ctrl-C ends the time early."""
import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
import lab_results

BUILD = ROOT / "build/fuzz"
COUNTS = ROOT / "fuzz/executions.json"
FOUND = ROOT / "fuzz/found"
TURN_SECONDS = 60
# Turns alternate. Short inputs run up to five times as fast, and long ones reach the limits; `entropic` looks for rare
# features, which takes up to half of the time of a target that has many.
WAYS = (("-max_len=4096", "-entropic=1"), ("-max_len=512", "-entropic=0"))
INPUT_SECONDS_MAX = 20  # an input of 4 KiB that takes longer is a failure, even on a machine that does other work too


def executions_so_far():
    return json.loads(COUNTS.read_text()) if COUNTS.exists() else {}


@dataclasses.dataclass
class Target:
    name: str
    executions: int  # in all runs
    added: int = 0  # in this one
    turns: int = 0
    seconds: float = 0
    failed: bool = False

    @property
    def program(self):
        return BUILD / f"fuzz/fuzz_{self.name}"

    @property
    def found(self):
        return BUILD / "found" / self.name

    @property
    def corpora(self):
        return [self.found, ROOT / "fuzz/corpus" / self.name]

    def unpack(self):
        shutil.rmtree(self.found, ignore_errors=True)
        self.found.mkdir(parents=True)
        archive = FOUND / f"{self.name}.zip"
        if archive.exists():
            with zipfile.ZipFile(archive) as inputs:
                inputs.extractall(self.found)

    def run(self, seconds):
        """Returns what went wrong, or nothing. Stacks of allocations are not recorded, which saves a fifth of the time: run
        the input of a failure by hand to see them. The files of a target are in memory."""
        way = WAYS[self.turns % len(WAYS)]
        self.turns += 1
        ended = subprocess.run([self.program, f"-max_total_time={seconds}", f"-timeout={INPUT_SECONDS_MAX}", *way,
                                "-print_final_stats=1", f"-artifact_prefix={BUILD}/{self.name}-", *self.corpora],
                               capture_output=True, text=True, errors="replace", start_new_session=True,
                               env={**os.environ, "ASAN_OPTIONS": "malloc_context_size=0", "TMPDIR": "/dev/shm"})
        counts = re.findall(r"stat::number_of_executed_units:\s*(\d+)", ended.stderr) or re.findall(r"^#(\d+)", ended.stderr, re.M)
        self.added += int(counts[-1]) if counts else 0
        self.seconds += seconds
        self.failed = ended.returncode != 0
        return ended.stderr[-4000:] if self.failed else ""

    def pack(self):
        """Keeps those inputs that together reach all that the corpora reach."""
        with tempfile.TemporaryDirectory() as directory:
            subprocess.run([self.program, "-set_cover_merge=1", directory, *self.corpora], check=True, capture_output=True)
            inputs = sorted(pathlib.Path(directory).iterdir())
            FOUND.mkdir(exist_ok=True)
            with zipfile.ZipFile(FOUND / f"{self.name}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
                for one in inputs:
                    archive.writestr(zipfile.ZipInfo(one.name), one.read_bytes(), zipfile.ZIP_DEFLATED)


class Targets:
    """The targets and the time that is left for them. Each has one run at a time."""

    def __init__(self, names, minutes):
        known = executions_so_far()
        self.all = [Target(name, known.get(name, 0)) for name in names]
        self.free, self.lock = list(self.all), threading.Lock()
        self.end = time.monotonic() + 60 * minutes

    def stop(self):
        """Turns in progress end in their time."""
        print(f"ends within {TURN_SECONDS} s", flush=True)
        self.end = 0

    def fuzz(self):
        """Runs on one processor until the time is over."""
        while (left := round(self.end - time.monotonic())) > 0:
            with self.lock:
                if not self.free:
                    return
                target = min(self.free, key=lambda one: one.executions + one.added)
                self.free.remove(target)
            problem = target.run(min(TURN_SECONDS, left))
            with self.lock:
                if problem:
                    print(f"{target.name}: FAILED; the input is in {BUILD.relative_to(ROOT)}\n{problem}", flush=True)
                else:
                    print(f"{target.name}: {target.added} executions in {target.seconds:.0f} s", flush=True)
                    self.free.append(target)

    def keep(self):
        counts = {**executions_so_far(), **{one.name: one.executions + one.added for one in self.all}}
        COUNTS.write_text(json.dumps(counts, indent=2, sort_keys=True) + "\n")
        for target in self.all:
            said = "FAILED: the input is in build/fuzz" if target.failed else "nothing found"
            lab_results.note("fuzz", target.name, target.added, f"{said}; {counts[target.name]:.1e} executions in all runs")
        for target in self.all:
            if not target.failed and target.added:
                target.pack()


def build(names):
    environment = {**os.environ, "CCACHE_BASEDIR": str(ROOT), "CCACHE_NOHASHDIR": "1"}
    if not (BUILD / "build.ninja").exists():
        subprocess.run(["cmake", "--preset", "fuzz"], cwd=ROOT, check=True, env=environment)
    subprocess.run(["cmake", "--build", BUILD, "--target", *(f"fuzz_{one}" for one in names)], cwd=ROOT, check=True,
                   env=environment)


def main():
    names = re.findall(r"^tuft_fuzz_target\((\w+)", (ROOT / "fuzz/CMakeLists.txt").read_text(), re.M)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="for all targets together")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=" ".join(names))
    options = parser.parse_args()
    if unknown := set(options.targets) - set(names):
        parser.error(f"unknown target {min(unknown)}")
    build(options.targets or names)
    targets = Targets(options.targets or names, options.minutes)
    for target in targets.all:
        target.unpack()
    signal.signal(signal.SIGINT, lambda *_: targets.stop())
    processors = len(os.sched_getaffinity(0))
    with concurrent.futures.ThreadPoolExecutor(processors) as threads:
        for running in [threads.submit(targets.fuzz) for _ in range(processors)]:
            running.result()
    targets.keep()
    return 1 if any(target.failed for target in targets.all) else 0


if __name__ == "__main__":
    sys.exit(main())
