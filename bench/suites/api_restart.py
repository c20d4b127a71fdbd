"""How long a start takes without and with many records: kill -9, then the time until healthz answers."""
import array
import http.client
import json
import threading

import measure
import server
from suites import api_ingest, api_store

TOKENS = 8


def forward(model, seq_id):
    """Returns the body of a small forward pass, which changes nothing."""
    tokens = list(range(1, TOKENS + 2))
    inputs = {"target_tokens": api_ingest.tensor(2, array.array("q", tokens[1:])),
              "weights": api_ingest.tensor(1, array.array("f", [1.0] * TOKENS))}
    field = api_ingest.field
    datum = field(1, 2, field(1, 2, field(1, 2, array.array("i", tokens[:-1]).tobytes())))
    datum += b"".join(field(2, 2, field(1, 2, name.encode()) + field(2, 2, value)) for name, value in inputs.items())
    return (field(1, 2, model.encode()) + field(2, 0, api_ingest.varint(seq_id)) + field(3, 2, datum) +
            field(4, 2, b"cross_entropy") + field(6, 0, b"\x01"))


def fill(running, model, count):
    """Makes `count` finished futures of one run; waits for the last one."""
    connection = http.client.HTTPConnection(running.url.removeprefix("http://"), timeout=120)
    headers = {"X-API-Key": server.KEY, "Content-Type": "application/x-protobuf"}
    for seq in range(1, count + 1):
        connection.request("POST", "/api/v1/forward_backward", forward(model, seq), headers)
        submitted = json.loads(connection.getresponse().read())
    poll = json.dumps({"request_id": submitted["request_id"], "allow_metadata_only": False})
    status = 408
    while status == 408:
        connection.request("POST", "/api/v1/retrieve_future", poll, {
            "X-API-Key": server.KEY, "Content-Type": "application/json", "Accept": "application/x-protobuf"})
        answer = connection.getresponse()
        answer.read()
        status = answer.status
    if status != 200:
        raise RuntimeError(f"a future ended with {status}")


def restarts(options, name, settings):
    running = server.Server(options, "restart", settings=settings, model_size="tiny")
    count = max(3, options.repetitions)
    with running:
        def starts():
            seconds = []
            for number in range(1, count + 1):
                measure.progress.step((name, "start"), number, count)
                running.kill()
                seconds.append(running.launch())
            return measure.spread(seconds)

        empty = starts()
        if name == "DISABLE":
            return dict(mode=name, empty_seconds=empty)
        session = running.create_session()
        runs = 10
        models = [running.create_model(session, number) for number in range(runs)]
        threads = [threading.Thread(target=fill, args=(running, model, options.records // runs)) for model in models]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        full = starts()
        return dict(mode=name, records=options.records, empty_seconds=empty, full_seconds=full,
                    resident_mb=running.resident_megabytes())


def run(options):
    samples = []
    with api_store.Redis(options, "everysec") as redis:
        for left in options.scratch.glob("restart.db*"):
            left.unlink()
        where = {"FILE": f"  file_path: {options.scratch / 'restart.db'}\n", "REDIS": f"  redis_url: {redis.url}\n"}
        for mode, place in where.items():
            samples.append(restarts(options, mode, f"persistence:\n  mode: {mode}\n  namespace: restart\n{place}"))
        samples.append(restarts(options, "DISABLE", ""))
    rows = [[one["mode"], one["empty_seconds"], one.get("full_seconds", "keeps nothing")]
            for one in samples]
    return dict(data=samples, notes=[], tables=[dict(
        title=f"Seconds from the start of the program to healthz, after kill -9, with {options.records:,} finished operations "
        "of 10 runs", columns=["mode", "with nothing", "with the records"], rows=rows)])
