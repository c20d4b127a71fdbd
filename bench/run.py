#!/usr/bin/env python3
"""Implements ./dev bench: runs suites and writes <out>/<date>-<suite>.json and .md. See bench/README.md."""
import argparse
import importlib
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import against  # noqa: E402
import measure  # noqa: E402
from peers import environments  # noqa: E402

SUITES = ["engine", "growth", "training", "fairness", "sampling", "publish", "pause", "polls", "api", "telemetry",
          "telemetry_store", "telemetry_console", "scale", "gpu"]


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"one of {', '.join(SUITES)}; default: all")
    parser.add_argument("--bin", dest="programs", type=pathlib.Path, required=True,
                        help="the directory of tuft, e.g. build/release/bin")
    parser.add_argument("--out", type=pathlib.Path, default=measure.ROOT / "bench" / "results")
    parser.add_argument("--peers", action="store_true", help="first make the peers' virtual environments in "
                        "build/peers from bench/peers/requirements-*.txt; later runs use them")
    parser.add_argument("--python", help="an interpreter with torch, transformers and peft for the suites training, "
                        "fairness and sampling, with fastapi, uvicorn, uvloop, httptools, tinker and zstandard for the suite api")
    parser.add_argument("--tuft", help="TuFT's own program, for the suites training, fairness, publish and api")
    parser.add_argument("--llama-python", help="an interpreter with llama-cpp-python, gguf and numpy, for the suite "
                        "sampling")
    parser.add_argument("--sdk-python", help="an interpreter with tinker; default: .venv/bin/python")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--before", type=pathlib.Path, metavar="BIN", help="the same directory of another build, e.g. of "
                        "an older commit: run each suite on both in turns and give ratios")
    parser.add_argument("--rounds", type=int, default=5, help="with --before: how often each build runs a suite")
    parser.add_argument("--pairs", type=int, default=10, help="minimum pairs of on and off in the suite telemetry")
    parser.add_argument("--seconds", type=int, default=3, help="duration of one sample of the API")
    parser.add_argument("--parts", type=lambda text: text.split(","), help="of the suite api: posts, parked, ingest, store, "
                        "restart; of engine: train, tenants, decode; of scale: pair, simulated, joined, losses, placement; of "
                        "telemetry_console: small, medium; default: all")
    parser.add_argument("--parked", type=int, default=10_000, help="open polls in the suite api")
    parser.add_argument("--hold", type=int, default=60, help="seconds for which the polls stay open")
    parser.add_argument("--bodies", type=int, default=40, help="bodies of 5 MB in one sample of the suite api")
    parser.add_argument("--records", type=int, default=10_000, help="records that a restart in the suite api reads")
    parser.add_argument("--minutes", type=float, default=15, help="time after which the suites training, sampling and gpu begin "
                        "no other case")
    parser.add_argument("--device", default="cuda:0", help="of the suite gpu")
    parser.add_argument("--threads", type=int, default=measure.machine()["cores"])
    parser.add_argument("--wait-idle", type=float, default=0, metavar="MINUTES",
                        help="before each suite, wait at most this long for the machine to become idle")
    parser.add_argument("--scratch", type=pathlib.Path, default=measure.ROOT / "build" / "bench-scratch")
    options = parser.parse_args()
    for suite in options.suites:
        if suite not in SUITES:
            parser.error(f"no suite {suite!r}; there are {', '.join(SUITES)}")
    options.programs = options.programs.resolve()
    options.scratch = options.scratch.resolve()
    if options.before:
        options.before = options.before.resolve()
        options.before_commit = measure.output_of("git", "-C", options.before, "rev-parse", "--short=12", "HEAD")
    venv = measure.ROOT / ".venv" / "bin" / "python"
    options.peer_errors = {}
    options.sdk_python = options.sdk_python or (str(venv) if venv.exists() else None)
    return options


def number(value):
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def cell(value):
    if isinstance(value, dict) and "median" in value:
        return f"{number(value['median'])} ({number(value['min'])} - {number(value['max'])})"
    if isinstance(value, dict) and "ratio" in value:
        interval = "" if value["low"] is None else f" [{value['low']:.3f}, {value['high']:.3f}]"
        return f"{value['ratio']:.3f}{interval}"
    return str(value)


def usage(hardware):
    seen = [f"{name} {hardware[key]['mean']:.0f} % (up to {hardware[key]['max']:.0f} %)"
            for name, key in (("processors", "cpu_percent"), ("memory", "memory_percent"), ("GPU", "gpu_utilization_percent"))
            if hardware.get(key)]
    return ", ".join(seen) or hardware["status"]


def markdown(suite, result):
    machine, lines = result["machine"], [f"# {suite}, {result['date']}", ""]
    lines += [f"- {key}: {value}" for key, value in {**machine, **result["versions"]}.items()]
    lines += [f"- used by other programs before and after: {result['busy_before']:.0%}, {result['busy_after']:.0%}",
              f"- while it ran: {usage(result['hardware'])}",
              f"- repetitions: {result['repetitions']}; numbers are median (min - max)", ""]
    for table in result.get("tables", []):
        lines += [f"## {table['title']}", ""]
        if table["columns"]:
            lines += ["| " + " | ".join(table["columns"]) + " |", "|" + " --- |" * len(table["columns"])]
            lines += ["| " + " | ".join(cell(value) for value in row) + " |" for row in table["rows"]]
            lines.append("")
    lines += [f"- {note}" for note in result.get("notes", [])]
    return "\n".join(lines).rstrip() + "\n"


def write(options, suite, result):
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{result['date']}-{suite}"
    text = markdown(suite, result)
    path.with_suffix(".json").write_text(as_json(result))
    path.with_suffix(".md").write_text(text)
    print(text)


def as_json(result):
    """Returns the facts and the spread of every number; the tables and notes are in the .md file."""
    kept = {key: value for key, value in result.items() if key not in ("tables", "notes")}
    return json.dumps({**kept, "data": measure.summary(result["data"])}, indent=1) + "\n"


def expectation(options, suite):
    """Returns how long a suite takes, according to its newest result in `--out` or bench/results."""
    found = [path for directory in (options.out, measure.ROOT / "bench" / "results")
             for path in directory.glob(f"*-{suite}.json")]
    for path in sorted(found, key=lambda path: path.name, reverse=True):
        seconds = json.loads(path.read_text()).get("took_seconds")
        if seconds:
            return f"about {max(1, round(seconds / 60))} min, as in {path.name}"
    return "duration not known: there is no earlier result"


def run_suite(options, suite):
    busy = measure.wait_until_idle(options.wait_idle)
    facts = dict(suite=suite, date=measure.today(), machine=measure.machine(),
                 versions=measure.versions(options.programs), repetitions=options.repetitions,
                 busy_before=busy)
    begin = time.monotonic()
    if busy > 0.05:
        measure.progress.line(f"other programs use {busy:.0%} of the machine: do not commit these numbers")
    monitor = measure.HardwareMonitor(options.programs)
    try:
        result = (against.run(options, suite) if options.before
                  else importlib.import_module(f"suites.{suite}").run(options))
    finally:
        hardware = monitor.stop_and_collect()
    write(options, f"{suite}-against" if options.before else suite, {**facts, "busy_after": measure.busy_share(), "hardware": hardware,
                           "took_seconds": round(time.monotonic() - begin), **result})


def main():
    options = parse()
    options.scratch.mkdir(parents=True, exist_ok=True)
    if options.peers:
        options.peer_errors = environments.make(measure.progress.line)
    failed, suites = False, options.suites or SUITES
    for number, suite in enumerate(suites, 1):
        begin = time.monotonic()
        measure.progress.begin(suite)
        measure.progress.line(f"suite {number} of {len(suites)}: {suite}; {expectation(options, suite)}")
        try:
            run_suite(options, suite)
        except measure.Skip as reason:
            measure.progress.line(f"{suite} skipped: {reason}")
            continue
        except (RuntimeError, OSError) as error:
            measure.progress.line(f"{suite} failed: {error}")
            failed = True
        measure.progress.line(f"{suite} took {time.monotonic() - begin:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
