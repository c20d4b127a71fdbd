"""The cost of telemetry: two servers, one exporting every trace, metric and log to a live collector, one without, in
pairs."""
import collector
import measure
import server

LENGTHS = [64] * 8
PAUSE_MS = 10  # 64 connections: about 6,000 requests a second


def sdk(options, running):
    if not options.sdk_python:
        raise measure.Skip("no interpreter with the Tinker SDK: ./dev setup makes .venv, or give --sdk-python")
    return measure.Child([options.sdk_python, measure.ROOT / "bench" / "sdk_client.py"], TINKER_BASE_URL=running.url,
                         TINKER_API_KEY=server.KEY, TINKER_TELEMETRY="0", HF_HUB_OFFLINE="1",
                         NO_PROXY="127.0.0.1,localhost")


def with_cpu(running, take):
    before = running.cpu_seconds()
    sample = take()
    return {**sample, "cpu_seconds": running.cpu_seconds() - before}


def load_sources(options, running, client):
    # A request that always has a span. Of heartbeats only some have one.
    path = f"/api/v1/sessions/{running.create_session()}"
    full = server.write_wrk_script(running.home / "full.lua")
    paced = server.write_wrk_script(running.home / "paced.lua", delay_ms=PAUSE_MS)
    sources = {"api": lambda: server.wrk(running, path, full, options.seconds),
               "api, paced": lambda: server.wrk(running, path, paced, options.seconds)}
    if client is not None:
        sources |= {
            "train": lambda: with_cpu(running, lambda: client.ask(op="train", lengths=LENGTHS, steps=4)),
            "decode": lambda: with_cpu(running, lambda: client.ask(op="decode", batch=8, prompt=16, new_tokens=128)),
        }
    return sources


def run(options):
    sink, notes, clients = collector.Sink(options), [], []
    with server.Server(options, "on", sink.endpoint) as on, server.Server(options, "off") as off:
        try:
            clients = [sdk(options, on), sdk(options, off)]
        except measure.Skip as reason:
            notes.append(f"Training and decoding are not measured: {reason}.")
        on_sources = load_sources(options, on, clients[0] if clients else None)
        off_sources = load_sources(options, off, clients[1] if clients else None)
        samples = {}
        for load in on_sources:
            samples[load] = measure.interleaved({"on": on_sources[load], "off": off_sources[load]},
                                                max(options.repetitions, options.pairs))
        for client in clients:
            client.close()
    received = sink.close()
    missing = [signal for signal in ("trace", "metrics", "logs")
               if not any(f".{signal}." in method.lower() for method in received)]
    if missing:
        notes.append(f"NOT VALID: the collector never received: {', '.join(missing)}.")
    return report(samples, received, notes)


def report(samples, received, notes):
    rows, data = [], []
    for load, taken in samples.items():
        unit = "requests" if load.startswith("api") else "tokens"
        on, off = measure.rates(taken["on"], unit), measure.rates(taken["off"], unit)
        ratio = measure.paired_ratio(on, off)
        cpu = measure.paired_ratio(*([sample["cpu_seconds"] / sample[unit] for sample in taken[name]]
                                     for name in ("on", "off")))
        rows.append([load, measure.spread(on), measure.spread(off), ratio, cpu])
        data.append(dict(case=load, unit=unit, on=measure.spread(on), off=measure.spread(off), ratio=ratio,
                         cpu_ratio=cpu, raw=taken))
    latency = [[f"p{part}", *(measure.spread([sample[f"p{part}_us"] / 1000 for sample in samples["api, paced"][side]])
                              for side in ("on", "off")),
                measure.paired_ratio(*([sample[f"p{part}_us"] for sample in samples["api, paced"][side]]
                                       for side in ("on", "off")))] for part in (50, 99)]
    traffic = ", ".join(f"{method.rpartition('/')[0].rpartition('.')[2]} {counts['requests']} requests "
                        f"{counts['bytes'] / 1e6:.1f} MB" for method, counts in sorted(received.items()))
    return dict(data=dict(measurements=data, received=received),
                tables=[dict(title="Telemetry on against off, 100 % of traces, whole server",
                             columns=["load", "on, per second", "off, per second", "rate on/off [95 %]",
                                      "server CPU on/off [95 %]"], rows=rows),
                        dict(title="Latency of the paced API load, ms",
                             columns=["", "on", "off", "on/off [95 %]"], rows=latency)],
                notes=["api: as many GETs of a session as the cores can serve, so that exporting takes its time from requests. "
                       "api, paced: 64 connections that pause 10 ms before each request.",
                       f"The collector runs on the same cores and received: {traffic or 'nothing'}.",
                       "train and decode go through the Tinker SDK; its own time is included on both sides.", *notes])
