#!/usr/bin/env python3
"""`./dev lab`: what takes hours. Runs its parts, prints what they print, and writes what was tried, how often and what
happened, and on which commit, into the table of docs/reliability.md. A part that is not run keeps its rows.

    ./dev lab                        all parts: about two hours, and as long for the sanitizers
    ./dev lab --hours 0.2 victim     one part, shorter
"""
import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
TESTS, ROOT = HERE.parent, HERE.parents[1]
PAGE = ROOT / "docs/reliability.md"
BEGIN, END = "<!-- lab: begin -->", "<!-- lab: end -->"
HEAD = "| part | tried | times | what happened | commit, date |\n|---|---|---|---|---|\n"


def pytest_of(*files, **environment):
    return [sys.executable, "-m", "pytest", "-q", "-s", "-rs", "-p", "no:cacheprovider", *files], environment


def suites_with(preset):
    return [str(ROOT / "dev"), "test", "-L", "unit|system"], {"TUFT_PRESET": preset}


def rounds_of(hours):
    """Returns how many rounds of kill -9 take a quarter of the time: one takes about five seconds, with two stores."""
    return str(max(5, round(hours * 3600 / 4 / 10)))


def long_form(hours):
    return {"TUFT_LAB": "1"} if hours >= 1 else {}


NETWORK_TESTS = ("hosts", "network", "split_brain", "slow_links", "client_links", "two_servers_cut")
# Each word with what it runs, as a function of the hours of the whole lab.
PARTS = {
    "crash": lambda hours: pytest_of("fault/test_crash.py", TUFT_CRASH_ROUNDS=rounds_of(hours)),
    "takeover": lambda hours: pytest_of("fault/test_takeover.py", TUFT_TAKEOVER_ROUNDS=rounds_of(hours)),
    "workers": lambda hours: pytest_of("fault/test_workers_back.py", "fault/test_replicate.py",
                                       TUFT_CRASH_ROUNDS=rounds_of(hours)),
    "disk": lambda hours: pytest_of("fault/test_disk.py", **long_form(hours)),
    "torn": lambda hours: pytest_of("fault/test_torn.py"),
    "clock": lambda hours: pytest_of("fault/test_clock.py"),
    "processes": lambda hours: pytest_of("fault/test_processes.py"),
    "redis": lambda hours: pytest_of("fault/test_redis.py"),
    "network": lambda hours: pytest_of(*(f"fault/test_{name}.py" for name in NETWORK_TESTS), **long_form(hours),
                                       TUFT_NETWORK_ROUNDS=str(max(5, round(hours * 60)))),
    "amplification": lambda hours: pytest_of("hostile/test_amplification.py", **long_form(hours)),
    "victim": lambda hours: pytest_of("hostile/test_victim.py", **long_form(hours),
                                      TUFT_VICTIM_ROUNDS=str(max(1, round(hours * 10)))),
    "soak": lambda hours: ([sys.executable, "hostile/soak.py", "--minutes", f"{max(1.0, hours * 15):g}"], {}),
    "fuzz": lambda hours: ([sys.executable, "hostile/fuzz.py", "--minutes", f"{max(1.0, hours * 15):g}"], {}),
    "interleavings": lambda hours: ([sys.executable, "hostile/interleavings.py", "--minutes",
                                     f"{max(0.5, hours * 5):g}"], {}),
    "api": lambda hours: ([sys.executable, "hostile/api_fuzz.py", "--examples", str(max(5, round(hours * 50)))], {}),
    "asan": lambda hours: suites_with("asan"),
    "tsan": lambda hours: suites_with("tsan"),
}


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()


def commit():
    """Returns the last commit that changed the programs, which is the same for whoever repeats a run."""
    found = git("log", "-1", "--format=%h", "--", "src", "proto") or "unknown"
    return found + (" with changes" if git("status", "--porcelain", "--", "src", "proto") else "")


def run_part(name, hours):
    """Returns the rows of a part, and whether it passed."""
    command, environment = PARTS[name](hours)
    with tempfile.TemporaryDirectory() as directory:
        results = pathlib.Path(directory) / "results"
        results.touch()
        begin = time.monotonic()
        status = subprocess.run(command, cwd=TESTS, env={**os.environ, **environment,
                                                         "TUFT_LAB_RESULTS": str(results)}).returncode
        minutes = (time.monotonic() - begin) / 60
        rows = [json.loads(line) for line in results.read_text().splitlines()]
    rows.append({"part": name, "tried": "the whole part", "times": 1,
                 "result": ("passed" if status == 0 else f"FAILED (status {status})") + f", {minutes:.1f} min"})
    return rows, status == 0


def cell(value):
    return str(value).replace("|", "\\|").replace("\n", " ")


def lines_of(rows, on):
    return [f"| {row['part']} | " + " | ".join(cell(row[key]) for key in ("tried", "times", "result")) + f" | {on} |"
            for row in rows]


def write_page(lines, names):
    """Replaces the lines of the parts `names`."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    old, _, after = rest.partition(END)
    part_of = {line: line.split("|")[1].strip() for line in [*old.splitlines(), *lines] if line.startswith("| ")}
    kept = [line for line in old.splitlines() if part_of.get(line) in PARTS and part_of[line] not in names]
    rows = sorted([*kept, *lines], key=lambda line: list(PARTS).index(part_of[line]))
    PAGE.write_text(f"{before}{BEGIN}\n{HEAD}" + "\n".join(rows) + f"\n{END}{after}")


def main():
    parser = argparse.ArgumentParser(prog="./dev lab", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=2, help="about how long all parts together take")
    parser.add_argument("parts", nargs="*", metavar="PART", help=" ".join(PARTS))
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {min(unknown)}; the parts are {' '.join(PARTS)}")
    names, failed = options.parts or list(PARTS), []
    for number, name in enumerate(names, 1):
        print(f"lab: part {number} of {len(names)}: {name}", flush=True)
        rows, passed = run_part(name, options.hours)
        failed += [] if passed else [name]
        today = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
        write_page(lines_of(rows, f"{commit()}, {today}"), [name])
        print(f"lab: {name} {'passed' if passed else 'FAILED'}; its rows are in {PAGE.relative_to(ROOT)}", flush=True)
    print(f"lab: {len(names) - len(failed)} of {len(names)} parts passed" + (f"; failed: {' '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
