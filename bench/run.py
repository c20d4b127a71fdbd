#!/usr/bin/env python3
"""./dev bench: runs suites and writes <out>/<date>-<suite>.json and .md. See bench/README.md."""
import argparse
import importlib
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import measure  # noqa: E402

SUITES = ["engine", "growth", "training", "fairness", "sampling", "publish", "api", "telemetry"]


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)}; all of them by default")
    parser.add_argument("--bin", dest="programs", type=pathlib.Path, required=True,
                        help="where tuft is, e.g. build/release/bin")
    parser.add_argument("--out", type=pathlib.Path, default=measure.ROOT / "bench" / "results")
    parser.add_argument("--python", help="an interpreter with torch, transformers and peft for the suites training, "
                        "fairness and sampling, with fastapi, uvicorn, uvloop, httptools, tinker and zstandard for the suite api")
    parser.add_argument("--tuft", help="TuFT's own program, for the suites training, fairness, publish and api")
    parser.add_argument("--llama-python", help="an interpreter with llama-cpp-python, gguf and numpy, for the suite "
                        "sampling")
    parser.add_argument("--sdk-python", help="an interpreter with tinker; .venv/bin/python by default")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=10, help="of on and off in the suite telemetry, at least")
    parser.add_argument("--seconds", type=int, default=3, help="of one sample of the API")
    parser.add_argument("--parts", type=lambda text: text.split(","), help="of the suite api: posts, parked, ingest, store, "
                        "restart; of engine: train, tenants, decode; all by default")
    parser.add_argument("--parked", type=int, default=10_000, help="polls in the suite api")
    parser.add_argument("--hold", type=int, default=60, help="seconds for which they are parked")
    parser.add_argument("--bodies", type=int, default=40, help="of 5 MB, in one sample of the suite api")
    parser.add_argument("--records", type=int, default=10_000, help="that a restart in the suite api reads")
    parser.add_argument("--minutes", type=float, default=15, help="after which the suites training and sampling begin no "
                        "other case")
    parser.add_argument("--threads", type=int, default=measure.machine()["cores"])
    parser.add_argument("--wait-idle", type=float, default=0, metavar="MINUTES",
                        help="wait so long at most for the machine to become idle, before each suite")
    parser.add_argument("--scratch", type=pathlib.Path, default=measure.ROOT / "build" / "bench-scratch")
    options = parser.parse_args()
    for suite in options.suites:
        if suite not in SUITES:
            parser.error(f"no suite {suite!r}; there are {', '.join(SUITES)}")
    options.programs = options.programs.resolve()
    options.scratch = options.scratch.resolve()
    venv = measure.ROOT / ".venv" / "bin" / "python"
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
    lines += [f"- in use by others before and after: {result['busy_before']:.0%}, {result['busy_after']:.0%}",
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
    path.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    text = markdown(suite, result)
    path.with_suffix(".md").write_text(text)
    print(text)


def run_suite(options, suite):
    busy = measure.wait_until_idle(options.wait_idle)
    facts = dict(suite=suite, date=measure.today(), machine=measure.machine(),
                 versions=measure.versions(options.programs), repetitions=options.repetitions,
                 busy_before=busy)
    if busy > 0.05:
        print(f"bench: others use {busy:.0%} of the machine: do not publish these numbers", file=sys.stderr)
    monitor = measure.HardwareMonitor(options.programs)
    try:
        result = importlib.import_module(f"suites.{suite}").run(options)
    finally:
        hardware = monitor.stop_and_collect()
    write(options, suite, {**facts, "busy_after": measure.busy_share(), "hardware": hardware, **result})


def main():
    options = parse()
    options.scratch.mkdir(parents=True, exist_ok=True)
    failed = False
    for suite in options.suites or SUITES:
        begin = time.monotonic()
        try:
            run_suite(options, suite)
        except measure.Skip as reason:
            print(f"bench: {suite} skipped: {reason}", file=sys.stderr)
            continue
        except (RuntimeError, OSError) as error:
            print(f"bench: {suite} failed: {error}", file=sys.stderr)
            failed = True
        print(f"bench: {suite} took {time.monotonic() - begin:.0f} s", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
