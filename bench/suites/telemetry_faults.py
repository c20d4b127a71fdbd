"""A server without a working collector: the effect on requests, what is dropped, how long the shutdown takes."""
import time

import collector
import measure
import server

MODES = ["live", "slow", "hang", "refuse", "reject", "dead"]
PAUSE_MS = 10  # 64 connections: about 6,000 requests a second, each with a span


def dropped_spans(running):
    """Reads the server's own /metrics, which needs no collector."""
    total = 0.0
    for line in running.get_text("/metrics").splitlines():
        name, _, rest = line.partition("{")
        if name == "tuft_telemetry_dropped_total" and 'signal="traces"' in rest and "worker=" not in rest:
            total += float(rest.rpartition("}")[2].split()[0])
    return total


def load(running, seconds):
    script = server.write_wrk_script(running.home / "paced.lua", delay_ms=PAUSE_MS)
    return server.wrk(running, f"/api/v1/sessions/{running.create_session()}", script, seconds)


def measure_mode(options, mode, off):
    sink = collector.make(options, mode)
    running = server.Server(options, f"fault-{mode}", sink.endpoint)
    try:
        warm_up = load(running, 2)
        before = running.resident_megabytes()
        samples = measure.interleaved({"on": lambda: load(running, 3), "off": lambda: load(off, 3)}, 3, warm_up=0)
        after, dropped = running.resident_megabytes(), dropped_spans(running)
        begin = time.monotonic()
        running.close()
        end = time.monotonic() - begin
    finally:
        running.close()
        sink.close()
    requests = warm_up["requests"] + sum(sample["requests"] for sample in samples["on"])
    latency = [measure.paired_ratio([sample[f"p{part}_us"] for sample in samples["on"]],
                                    [sample[f"p{part}_us"] for sample in samples["off"]]) for part in (50, 99)]
    row = [mode, *latency, f"{dropped:,.0f} of {requests:,}", f"{before:.0f} -> {after:.0f}", f"{end:.1f}"]
    return row, dict(mode=mode, samples=samples, dropped=dropped, resident=[before, after], end_seconds=end)


def run(options):
    rows, data = [], []
    with server.Server(options, "fault-off") as off:
        load(off, 2)
        for mode in MODES:
            row, raw = measure_mode(options, mode, off)
            rows.append(row)
            data.append(raw)
    return dict(data=dict(faults=data),
                tables=[dict(title="Collector not working: paced API load against a server without telemetry",
                             columns=["collector", "p50 on/off [95 %]", "p99 on/off [95 %]", "spans dropped",
                                      "resident MB", "stopping, s"], rows=rows)],
                notes=["slow answers each export after a second, hang never, refuse returns UNAVAILABLE, reject "
                       "INVALID_ARGUMENT, dead is a port without a listener."])
