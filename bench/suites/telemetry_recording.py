"""Nanoseconds and allocations of one record on the thread that records, and CPU and bytes of 10,000 spans a second:
tuft, opentelemetry-cpp's SDK and, with --python, OpenTelemetry's Python SDK, all exporting to a live collector."""
import contextlib

import collector
import measure
import rivals
from peers import environments

OPERATIONS = ["span", "counter, bound", "counter", "histogram, bound", "histogram in a trace, bound", "histogram",
              "log"]
COUNT = 30_000
RATE, SECONDS = 10_000, 3


def programs(options):
    built = options.programs.parent / "bench"
    commands = {"tuft": [built / "tuft_recording_tuft"], "otel-cpp": [built / "tuft_recording_otel"]}
    missing = [str(command[0]) for command in commands.values() if not command[0].exists()]
    if missing:
        raise measure.Skip(f"not built: {', '.join(missing)}")
    notes = []
    if python := environments.python(options, "fastapi"):
        commands["otel-python"] = [python, measure.ROOT / "bench" / "peers" / "recording_python.py"]
    else:
        notes.append("OpenTelemetry's Python SDK is not measured: ./dev bench --peers, or give --python.")
    return commands, notes


def measure_operations(children, repetitions):
    samples = {}
    for operation in OPERATIONS:
        sources = {}
        for name, child in list(children.items()):
            if operation.endswith("bound") and name != "tuft":
                continue  # only tuft can bind a label set in advance
            with contextlib.suppress(measure.PeerFailed):
                child.ask(op=operation, count=1)
                sources[name] = lambda child=child: child.ask(op=operation, count=COUNT)
        samples[operation] = measure.interleaved(sources, repetitions)
    return samples


def nanoseconds(taken):
    return [1e9 * sample["seconds"] / sample["operations"] for sample in taken]


def operation_rows(samples, disabled):
    rows = [["span, telemetry off", measure.spread(nanoseconds(disabled)), allocated(disabled), "", "", ""]]
    for operation, taken in samples.items():
        row = [operation]
        for name in ("tuft", "otel-cpp", "otel-python"):
            row += [measure.spread(nanoseconds(taken[name])) if name in taken else "",
                    *([allocated(taken[name])] if name != "otel-python" and name in taken else
                      [""] if name != "otel-python" else [])]
        rows.append(row)
    return rows


def allocated(taken):
    return f"{taken[-1]['allocations'] / taken[-1]['operations']:.2g}"


def pace_rows(children, sinks, repetitions):
    """CPU time of a second of recording at RATE: the recording thread, and the rest (draining, encoding, sending)."""
    taken = measure.interleaved({name: lambda child=child: child.ask(op="pace", rate=RATE, seconds=SECONDS)
                                 for name, child in children.items()}, repetitions, warm_up=0)
    rows = []
    for name, samples in taken.items():
        per = [sample["operations"] / RATE for sample in samples]
        whole = [100 * sample["cpu_seconds"] / seconds for sample, seconds in zip(samples, per)]
        recording = [100 * sample["recording_cpu_seconds"] / seconds for sample, seconds in zip(samples, per)]
        rows.append([name, measure.spread(recording),
                     measure.spread([a - b for a, b in zip(whole, recording)])])
    return rows, taken


def start(commands, sinks, notes):
    """Returns all children, and those that answer, by name; Python's SDK may be missing."""
    started = {name: measure.Child([*command, sinks[name].endpoint]) for name, command in commands.items()}
    children = dict(started)
    if "otel-python" in started:
        children["otel-python"] = rivals.Peer(started["otel-python"], "otel-python", children, notes)
        with contextlib.suppress(measure.PeerFailed):
            children["otel-python"].ask(op="span", count=1)
    return list(started.values()), children


def run(options):
    commands, notes = programs(options)
    sinks = {name: collector.Sink(options) for name in commands}
    started, children = start(commands, sinks, notes)
    with measure.Child([*commands["tuft"], "-"]) as off:
        disabled = [off.ask(op="span", count=COUNT) for _ in range(options.repetitions)]
    samples = measure_operations(children, options.repetitions)
    for child in started:
        child.close()
    for sink in sinks.values():
        sink.close()

    sinks = {name: collector.Sink(options) for name in children}
    started, children = start({name: commands[name] for name in children}, sinks, notes)
    rows, paced = pace_rows(children, sinks, 2)
    for child in list(children.values()):
        with contextlib.suppress(measure.PeerFailed):
            child.ask(op="close")
    for child in started:
        child.close()
    for row in rows:
        spans = sum(sample["operations"] for sample in paced[row[0]])
        row.append(f"{collector.bytes_of(sinks[row[0]].close(), 'trace') / spans:.0f}")
    return dict(data=dict(recording=samples, disabled=disabled, paced=paced),
                tables=[dict(title="One record on the calling thread, ns, and its allocations",
                             columns=["record", "tuft", "allocations", "otel-cpp", "allocations", "otel-python"],
                             rows=operation_rows(samples, disabled)),
                        dict(title=f"{RATE:,} spans a second: percent of one core",
                             columns=["", "recording thread", "the rest: encoding and sending", "bytes a span"],
                             rows=rows)],
                notes=["A span has six attributes, three of them UUIDs; a metric one label; a log three attributes. "
                       "Ours also writes the log's line to stderr.", *notes])
