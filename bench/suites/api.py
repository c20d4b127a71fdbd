"""Requests a second of the HTTP edge: wrk on the same machine, 64 connections, telemetry off."""
import measure
import server


def run(options):
    with server.Server(options, "api") as running:
        session = running.create_session()
        heartbeat = server.write_wrk_script(options.scratch / "heartbeat.lua", "POST",
                                            {"session_id": session, "type": "session_heartbeat"})
        healthz = server.write_wrk_script(options.scratch / "healthz.lua")
        sources = {
            "POST session_heartbeat": lambda: server.wrk(running, "/api/v1/session_heartbeat", heartbeat,
                                                         options.seconds),
            "GET healthz": lambda: server.wrk(running, "/api/v1/healthz", healthz, options.seconds),
        }
        samples = measure.interleaved(sources, options.repetitions)
        resident = running.resident_megabytes()
    rows, data = [], []
    for name, taken in samples.items():
        rate = measure.spread(measure.rates(taken, "requests"))
        p99 = measure.spread([sample["p99_us"] / 1000 for sample in taken])
        cost = measure.spread([1e6 * sample["cpu_seconds"] / sample["requests"] for sample in taken])
        rows.append([name, rate, p99, cost])
        data.append(dict(case=name, requests_per_second=rate, p99_ms=p99, server_cpu_us=cost, raw=taken))
    return dict(data=dict(measurements=data, resident_megabytes_after=resident),
                tables=[dict(title="wrk -t1 -c64, client and server share the cores",
                             columns=["request", "requests/s", "p99 ms", "server CPU us a request"], rows=rows)],
                notes=[f"Control plane resident after the run: {resident:.0f} MB."])
