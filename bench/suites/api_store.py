"""Durable writes per second: through the store classes alone, and as create_session through the whole server."""
import shutil
import subprocess
import time

import measure
import server

BYTES = 1000


class Redis:
    """A redis-server on a unix socket. appendfsync: "everysec" is Redis's default, "always" is as durable as FILE."""

    def __init__(self, options, appendfsync):
        if shutil.which("redis-server") is None:
            raise measure.Skip("redis-server is not installed")
        self.home = options.scratch / f"redis-{appendfsync}"
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True)
        self.url = f"unix://{self.home}/redis.sock"
        self.process = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", self.home / "redis.sock", "--dir",
                                         self.home, "--appendonly", "yes", "--appendfsync", appendfsync, "--save", ""],
                                        stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while not (self.home / "redis.sock").exists():
            if time.monotonic() > deadline:
                raise RuntimeError("redis-server did not start")
            time.sleep(0.02)

    def close(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def modes(options, fast, safe):
    return {"memory": ["memory"], "FILE (fsync)": ["file", options.scratch / "store-bench.db"],
            "REDIS (everysec)": ["redis", fast.url], "REDIS (always)": ["redis", safe.url]}


def classes(options, fast, safe):
    program = options.programs.parent / "bench" / "tuft_store_bench"
    if not program.exists():
        raise measure.Skip("tuft_store_bench is not built")
    for left in options.scratch.glob("store-bench.db*"):
        left.unlink()
    children = {name: measure.Child([program, *arguments]) for name, arguments in modes(options, fast, safe).items()}
    try:
        counts = {1: 300, 64: 10_000}
        sources = {(name, flight): lambda child=child, flight=flight: child.ask(op="write", count=counts[flight],
                                                                                in_flight=flight, bytes=BYTES)
                   for name, child in children.items() for flight in counts}
        return measure.interleaved(sources, options.repetitions)
    finally:
        for child in children.values():
            child.close()


def persistence(name, home, fast, safe):
    kind = name.split()[0]
    if kind == "memory":
        return "limits:\n  sessions_per_user_max: 1000000\n"
    url = {"REDIS (everysec)": fast.url, "REDIS (always)": safe.url}.get(name)
    where = f"  redis_url: {url}\n" if url else f"  file_path: {home}\n"
    return f"limits:\n  sessions_per_user_max: 1000000\npersistence:\n  mode: {kind}\n  namespace: api\n{where}"


def whole(options, fast, safe):
    running, sources = {}, {}
    body = {"tags": [], "user_metadata": None, "sdk_version": "0.25.0", "type": "create_session"}
    try:
        for name in modes(options, fast, safe):
            database = options.scratch / "sessions.db"
            for left in options.scratch.glob("sessions.db*"):
                left.unlink()
            one = running[name] = server.Server(options, "store-" + "".join(filter(str.isalnum, name)),
                                                settings=persistence(name, database, fast, safe))
            script = server.write_wrk_script(one.home / "session.lua", "POST", body)
            sources[name] = lambda one=one, script=script: server.wrk(one, "/api/v1/create_session", script,
                                                                      options.seconds)
        return measure.interleaved(sources, options.repetitions)
    finally:
        for one in running.values():
            one.close()


def run(options):
    with Redis(options, "everysec") as fast, Redis(options, "always") as safe:
        alone, through = classes(options, fast, safe), whole(options, fast, safe)
    rows, raw = [], []
    for (name, flight), taken in alone.items():
        rate = measure.spread(measure.rates(taken, "operations"))
        p50, p99 = (measure.spread([sample[key] / 1000 for sample in taken]) for key in ("p50_us", "p99_us"))
        rows.append([name, f"writes of {BYTES} bytes, {flight} in flight", rate, p50, p99])
        raw.append(dict(mode=name, in_flight=flight, operations_per_second=rate, p50_ms=p50, p99_ms=p99, raw=taken))
    for name, taken in through.items():
        rate = measure.spread(measure.rates(taken, "requests"))
        p50, p99 = (measure.spread([sample[key] / 1000 for sample in taken]) for key in ("p50_us", "p99_us"))
        rows.append([name, "POST create_session, 64 connections", rate, p50, p99])
        raw.append(dict(mode=name, create_session_per_second=rate, p50_ms=p50, p99_ms=p99, raw=taken))
    table = dict(title="Durable writes", columns=["mode", "what", "operations/s", "p50 ms", "p99 ms"], rows=rows)
    return dict(data=raw, tables=[table],
                notes=["REDIS: a redis-server on a unix socket, appendonly yes, on the same cores."])
