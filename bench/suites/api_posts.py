"""Requests per second of the HTTP edge: wrk on the same machine, 64 connections, telemetry off."""
import contextlib

import measure
import peer_server
import server


def sources_of(options, name, running):
    session = running.create_session()
    heartbeat = server.write_wrk_script(running.home / "heartbeat.lua", "POST",
                                        {"session_id": session, "type": "session_heartbeat"})
    healthz = server.write_wrk_script(running.home / "healthz.lua")
    return {(name, "POST session_heartbeat"): lambda: server.wrk(running, "/api/v1/session_heartbeat", heartbeat,
                                                                 options.seconds),
            (name, "GET healthz"): lambda: server.wrk(running, "/api/v1/healthz", healthz, options.seconds)}


def run(options):
    notes = ["FastAPI: pydantic models, uvicorn with uvloop and httptools; ratios are tuft to it, pair by pair."]
    sources = {}
    started = peer_server.start_all(notes, ("tuft", lambda: server.Server(options, "api")),
                                    ("FastAPI, 1 worker", lambda: peer_server.FastApi(options, 1)),
                                    ("FastAPI, 2 workers", lambda: peer_server.FastApi(options, 2)),
                                    ("TuFT (Python), dummy back ends", lambda: peer_server.PythonTuft(options)))
    try:
        for name, running in started.items():
            with contextlib.suppress(measure.PeerFailed):
                found = peer_server.guarded(notes, name, lambda: sources_of(options, name, running))()
                sources |= {key: peer_server.guarded(notes, name, source) for key, source in found.items()}
        samples = measure.interleaved(sources, options.repetitions)
        resident = started["tuft"].resident_megabytes()
    finally:
        for running in started.values():
            running.close()
    rows, data = [], []
    for (name, request), taken in samples.items():
        rate = measure.spread(measure.rates(taken, "requests"))
        p50, p99 = (measure.spread([sample[key] / 1000 for sample in taken]) for key in ("p50_us", "p99_us"))
        cost = measure.spread([1e6 * sample["cpu_seconds"] / sample["requests"] for sample in taken])
        ours = measure.rates(samples["tuft", request], "requests")
        ratio = "" if name == "tuft" else measure.paired_ratio(ours, measure.rates(taken, "requests"))
        rows.append([request, name, rate, p50, p99, cost, ratio])
        data.append(dict(case=request, server=name, requests_per_second=rate, p50_ms=p50, p99_ms=p99, server_cpu_us=cost,
                         tuft_to_it=ratio or None, raw=taken))
    table = dict(title="Small requests: wrk -t1 -c64, client and server share the cores",
                 columns=["request", "server", "requests/s", "p50 ms", "p99 ms", "server CPU us a request", "tuft / it"],
                 rows=sorted(rows, key=lambda row: row[0]))
    return dict(data=dict(measurements=data, resident_megabytes_after=resident), tables=[table],
                notes=[*notes, f"Control plane resident after the small requests: {resident:.0f} MB."])
