"""Bodies of forward_backward of 5 MB: how many MB a second are received, decoded, checked and queued. The operations
wait for a seq_id that never comes, so the engine does no work."""
import array
import contextlib
import http.client
import random
import shutil
import subprocess
import threading
import time

import measure
import peer_server
import server

TOKENS = 1024
SETTINGS = "limits:\n  gap_timeout_seconds: 3600\n  runs_per_user_max: 1000\n"
CONNECTIONS = 2
PYTHON_TUFT = "TuFT (Python), dummy back ends"


def field(number, wire, payload):
    return varint(number << 3 | wire) + (payload if wire == 0 else varint(len(payload)) + payload)


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def tensor(dtype, values):
    return field(1, 2, values.tobytes()) + field(3, 0, varint(dtype)) + field(4, 2, varint(len(values)))


def datum(chance):
    tokens = [chance.randrange(256) for _ in range(TOKENS + 1)]
    inputs = {"target_tokens": tensor(2, array.array("q", tokens[1:])),
              "weights": tensor(1, array.array("f", [1.0] * TOKENS))}
    chunk = field(1, 2, field(1, 2, array.array("i", tokens[:-1]).tobytes()))
    return field(1, 2, chunk) + b"".join(field(2, 2, field(1, 2, name.encode()) + field(2, 2, value))
                                         for name, value in inputs.items())


def data(megabytes):
    chance, parts, size = random.Random(1), [], 0
    while size < megabytes * 1e6:
        parts.append(field(3, 2, datum(chance)))
        size += len(parts[-1])
    return b"".join(parts)


def bodies(model, blob, count, zstd):
    made = [field(1, 2, model.encode()) + field(2, 0, varint(2 + i)) + blob + field(4, 2, b"cross_entropy")
            for i in range(count)]
    if not zstd:
        return made
    # With the size in the frame, like the SDK.
    return [subprocess.run(["zstd", "-q", "-3", "-c", f"--stream-size={len(one)}"], input=one, capture_output=True,
                           check=True).stdout for one in made]


def send(running, all_bodies, zstd, problems):
    connection = http.client.HTTPConnection(running.url.removeprefix("http://"), timeout=60)
    headers = {"X-API-Key": server.KEY, "Content-Type": "application/x-protobuf"}
    if zstd:
        headers["Content-Encoding"] = "zstd"
    for body in all_bodies:
        connection.request("POST", "/api/v1/forward_backward", body, headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status not in (200, 202):
            problems.append(f"{answer.status} {text[:200]}")
            return


class Ingest:
    def __init__(self, running, blob, zstd):
        self.running, self.blob, self.zstd = running, blob, zstd
        self.session, self.models = running.create_session(), 0

    def sample(self, count):
        self.models += 1
        model = self.running.create_model(self.session, self.models)
        made, problems = bodies(model, self.blob, count, self.zstd), []
        cpu, begin = self.running.cpu_seconds(), time.monotonic()
        threads = [threading.Thread(target=send, args=(self.running, made[i::CONNECTIONS], self.zstd, problems))
                   for i in range(CONNECTIONS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds, cpu = time.monotonic() - begin, self.running.cpu_seconds() - cpu
        if problems:
            raise RuntimeError(f"forward_backward: {problems[0]}")
        self.running.post("/api/v1/unload_model", {"model_id": model, "type": "unload_model"})
        return dict(seconds=seconds, cpu_seconds=cpu, megabytes=count * len(self.blob) / 1e6,
                    sent_megabytes=sum(map(len, made)) / 1e6)


def run(options):
    notes, sources, blob = [], {}, data(5)
    kinds = {"protobuf": False, "protobuf, zstd": True}
    if shutil.which("zstd") is None:
        notes.append("no compressed bodies: the program zstd is not installed")
        kinds.pop("protobuf, zstd")
    started = peer_server.start_all(notes, ("tuft", lambda: server.Server(options, "ingest", settings=SETTINGS)),
                                    ("FastAPI, 1 worker", lambda: peer_server.FastApi(options, 1)),
                                    (PYTHON_TUFT, lambda: peer_server.PythonTuft(options)))
    try:
        for name, running in started.items():
            for kind, zstd in kinds.items():
                if zstd and name == PYTHON_TUFT:
                    continue
                with contextlib.suppress(measure.PeerFailed):
                    one = peer_server.guarded(notes, name, lambda: Ingest(running, blob, zstd))()
                    sources[name, kind] = peer_server.guarded(notes, name, lambda one=one: one.sample(options.bodies))
        samples = measure.interleaved(sources, options.repetitions)
    finally:
        for running in started.values():
            running.close()
    rows, raw = [], []
    for (name, kind), taken in samples.items():
        rate = measure.spread(measure.rates(taken, "megabytes"))
        cost = measure.spread([1000 * sample["cpu_seconds"] / sample["megabytes"] for sample in taken])
        ratio = "" if name == "tuft" else measure.paired_ratio(measure.rates(samples["tuft", kind], "megabytes"),
                                                               measure.rates(taken, "megabytes"))
        rows.append([kind, name, rate, cost, ratio])
        raw.append(dict(server=name, body=kind, megabytes_per_second=rate, cpu_ms_per_megabyte=cost, raw=taken))
    table = dict(title=f"forward_backward of 5 MB, {CONNECTIONS} connections (MB before compression)",
                 columns=["body", "server", "MB/s", "server CPU ms a MB", "tuft / it"],
                 rows=sorted(rows, key=lambda row: row[0]))
    return dict(data=raw, tables=[table], notes=notes)
