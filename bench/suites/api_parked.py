"""Many open polls of retrieve_future: what they cost while nothing happens, and how soon they are answered.

Each model has operations that wait for a seq_id that never arrives, so that their futures stay pending without an
engine. Unloading the model ends all of its futures at once: a wake-up is the time from sending that POST to each
answer."""
import contextlib

import measure
import peer_server
import server

SOURCES = 64  # client addresses
SETTLE = 8    # seconds for the server to read what was sent to it
SETTINGS = ("limits:\n  runs_per_user_max: 1000\n  reorder_window: 65536\n  gap_timeout_seconds: 3600\n"
            "  connections_max: 65536\n  connections_per_address_max: 65536\n")


def park(options, name, running):
    """Measures one sample."""
    polls = options.parked
    models, each = max(1, polls // 100), min(100, polls)
    session = running.create_session()
    before = running.resident_megabytes()
    ids, made = [], []
    for number in range(models):
        model = running.create_model(session, number)
        made.append(model)
        # seq_id 1 is never sent.
        ids += [running.post("/api/v1/optim_step", {"adam_params": {"learning_rate": 1e-4}, "model_id": model,
                                                    "seq_id": 2 + seq, "type": "optim_step"})["request_id"]
                for seq in range(each)]
    submitted = running.resident_megabytes()
    host, port = running.url.removeprefix("http://").split(":")
    program = options.programs.parent / "bench" / "tuft_parked_client"
    if not program.exists():
        raise measure.Skip("tuft_parked_client is not built")
    with measure.Child([program, host, port, server.KEY, SOURCES]) as client:
        parked = client.ask(op="park", ids=ids)["parked"]
        client.ask(op="hold", seconds=SETTLE)
        resident, cpu = running.resident_megabytes(), running.cpu_seconds()
        held = client.ask(op="hold", seconds=options.hold)
        cpu = (running.cpu_seconds() - cpu) / options.hold
        first, latencies = [], []
        for model in made:
            woken = client.ask(op="wake", path="/api/v1/unload_model", expect=each,
                               body=f'{{"model_id":"{model}","type":"unload_model"}}')["latencies_us"]
            first.append(woken[0])
            latencies += woken
    latencies.sort()
    first.sort()
    return dict(server=name, polls=parked, resident_mb=[before, submitted, resident],
                kilobytes_per_poll=1000 * (resident - submitted) / parked, cpu_share_parked=cpu, repolls=held["repolls"],
                client_cpu_seconds=held["cpu_seconds"],
                first_p50_ms=first[len(first) // 2] / 1000, p50_ms=latencies[len(latencies) // 2] / 1000,
                p99_ms=latencies[len(latencies) * 99 // 100] / 1000)


def run(options):
    notes, samples = [], []
    makers = (("tuft", lambda: server.Server(options, "parked", settings=SETTINGS)),
              ("FastAPI, 1 worker", lambda: peer_server.FastApi(options, 1)))
    for number, (name, make) in enumerate(makers, 1):
        measure.progress.step(("parked", name), number, len(makers))
        for running in peer_server.start_all(notes, (name, make)).values():
            with running, contextlib.suppress(measure.PeerFailed):
                samples.append(peer_server.guarded(notes, name, lambda: park(options, name, running))())
    table = dict(title="Parked polls of retrieve_future", rows=[
        [one["server"], one["polls"], f"{one['resident_mb'][1]:.0f} -> {one['resident_mb'][2]:.0f}",
         f"{one['kilobytes_per_poll']:.1f}", f"{100 * one['cpu_share_parked']:.2f} %", f"{one['first_p50_ms']:.2f}",
         f"{one['p50_ms']:.2f}", f"{one['p99_ms']:.2f}"] for one in samples],
        columns=["server", "polls", "resident MB, futures pending -> polls parked", "KB a poll",
                 "CPU of one core while parked", "first of 100 woken, p50 ms", "woken p50 ms", "woken p99 ms"])
    return dict(data=samples, tables=[table], notes=[
        *notes, f"Parked for {options.hold} s; polls that reach the long-poll timeout are sent again. They are woken 100 at "
        "a time; the latency is from the POST that ends their futures to the answer at the client, on the same cores."])
