"""Nanoseconds and allocations of one record on the thread that records, and CPU and bytes of 10,000 spans a second: ours,
opentelemetry-cpp's SDK and, with --python, OpenTelemetry's Python SDK, all exporting to a live collector."""
import collector
import measure

OPERATIONS = ["span", "counter, bound", "counter", "histogram, bound", "histogram", "log"]
COUNT = 30_000
RATE, SECONDS = 10_000, 3


def programs(options):
    built = options.programs.parent / "bench"
    commands = {"tuft": [built / "tuft_recording_tuft"], "otel-cpp": [built / "tuft_recording_otel"]}
    missing = [str(command[0]) for command in commands.values() if not command[0].exists()]
    if missing:
        raise measure.Skip(f"not built: {', '.join(missing)}")
    notes = []
    if options.python:
        commands["otel-python"] = [options.python, measure.ROOT / "bench" / "peers" / "recording_python.py"]
    else:
        notes.append("OpenTelemetry's Python SDK is not measured: give --python.")
    return commands, notes


def measure_operations(children, repetitions):
    samples = {}
    for operation in OPERATIONS:
        sources = {}
        for name, child in children.items():
            try:
                child.ask(op=operation, count=1)
            except RuntimeError:
                continue  # only ours can bind a label set beforehand
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
    """CPU of a second of recording at RATE, the recording thread's own and the rest (draining, encoding, sending)."""
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


def run(options):
    commands, notes = programs(options)
    sinks = {name: collector.Sink(options) for name in commands}
    children = {name: measure.Child([*command, sinks[name].endpoint]) for name, command in commands.items()}
    with measure.Child([*commands["tuft"], "-"]) as off:
        disabled = [off.ask(op="span", count=COUNT) for _ in range(options.repetitions)]
    samples = measure_operations(children, options.repetitions)
    for child in children.values():
        child.close()
    for sink in sinks.values():
        sink.close()

    sinks = {name: collector.Sink(options) for name in commands}
    children = {name: measure.Child([*command, sinks[name].endpoint]) for name, command in commands.items()}
    rows, paced = pace_rows(children, sinks, 2)
    for name, child in children.items():
        child.ask(op="close")
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
