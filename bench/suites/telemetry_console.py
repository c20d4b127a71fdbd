"""The cost of the embedded store, and of people who watch: three servers that export nothing, one without the store, one
with it, and one whose overview ten browsers have open.

The browsers are connections that ask what the page asks, as often: browsers themselves would need the same cores."""
import contextlib
import functools
import json
import subprocess

import measure
import server
from suites import polls, telemetry_overhead

BROWSERS = 10
OPERATIONS = "name=future_store.execute_operation%7Coai.proxy_inference&from=-1h"
SERIES = "/api/v1/observe/traces/series?" + OPERATIONS + "&step=60000000&fn="
METRIC = "/api/v1/observe/metrics/query?from=-1h&step=60000000&"
# What the overview asks in five seconds (console/src/pages/overview).
PAGE = ["/api/v1/observe/overview", "/api/v1/observe/overview", "/api/v1/observe/tenants",
        "/api/v1/observe/traces?status=error&limit=6&" + OPERATIONS, "/api/v1/observe/logs?level=warning&limit=6&from=-1h",
        *(SERIES + fn for fn in ("p95", "errors", "count", "p95&by=operation", "errors&by=operation", "busy&by=user")),
        *(METRIC + "name=" + query for query in (
            "tuft.training.tokens&fn=rate", "decode_tokens_processed&fn=rate", "tuft.dispatch.waiting&fn=last",
            "tuft.worker.busy&fn=mean", "tuft.training.tokens&fn=rate&by=base_model", "system.cpu.utilization&fn=mean",
            "decode_tokens_processed&fn=rate&by=worker", "tuft.dispatch.waiting&fn=last&by=base_model,kind",
            "tuft.worker.busy&fn=mean&by=base_model", "process.memory.usage&fn=last&by=worker"))]
PAGE_SECONDS = 5
# The loads of each base model; None: all. A token of the small one is so cheap that HTTP and telemetry are much of it. A
# request costs the API the same whatever the model.
LOADS = {"small": None, "medium": ("train", "decode")}
# Metrics that have no value yet are 404s.
SCRIPT = """
local paths, next = {%s}, 0
function delay() return %d end
function request()
  next = next %% #paths + 1
  return wrk.format("GET", paths[next])
end
"""


@contextlib.contextmanager
def watched(running, seconds):
    """Has the overview open in ten browsers."""
    script = running.home / "browsers.lua"
    script.write_text(f'wrk.headers["X-API-Key"] = "{server.KEY}"\n' +
                      SCRIPT % (", ".join(map(json.dumps, PAGE)), PAGE_SECONDS * 1000 // len(PAGE)))
    with subprocess.Popen(["wrk", "-t", "1", "-c", str(BROWSERS), "-d", f"{seconds}s", "-s", str(script), running.url],
                          stdout=subprocess.DEVNULL) as browsers:
        yield
        browsers.terminate()


def while_watched(running, take):
    def sample():
        with watched(running, 600):
            return take()
    return sample


def with_own_cpu(running, take):
    """Adds the processor time of the server without its workers and clients."""
    before = polls.own_cpu_seconds(running)
    sample = take()
    return {**sample, "own_cpu": polls.own_cpu_seconds(running) - before}


def run(options):
    console = "console: {operators: [bench]}\n"
    without = "  store: {enabled: false}\n"
    samples, answers = {}, {}
    # A new start of a server changes its speed by more than what is measured, so each round has servers of its own.
    for number in range(max(options.repetitions, options.pairs)):
        for size in (size for size in LOADS if not options.parts or size in options.parts):
            with server.Server(options, "off", settings=without + console, model_size=size) as off, \
                    server.Server(options, "store", settings=console, model_size=size) as store, \
                    server.Server(options, "watched", settings=console, model_size=size) as watch:
                servers = {"off": off, "store": store, "watched": watch}
                order = list(servers) if number % 2 == 0 else list(reversed(servers))
                answers = measure_round(options, servers, order, size, samples)
    return report(samples, answers)


def measure_round(options, servers, order, size, samples):
    """Takes a sample of each load from each server, in this order."""
    clients, sources = [], {}
    for name, running in servers.items():
        clients.append(telemetry_overhead.sdk(options, running))
        taken = {**telemetry_overhead.load_sources(options, running, clients[-1]),
                 "api, heartbeats": heartbeats(options, running)}
        sources[name] = {load: functools.partial(with_own_cpu, running, take) for load, take in taken.items()}
    sources["watched"] = {load: while_watched(servers["watched"], take) for load, take in sources["watched"].items()}
    for load in LOADS[size] or sources["off"]:
        takes = {name: sources[name][load] for name in order}
        for name, taken in measure.interleaved(takes, 1).items():
            samples.setdefault(f"{load}, {size}", {}).setdefault(name, []).extend(taken)
    answers = {path: servers["watched"].get(path) for path in PAGE[:3]}
    for client in clients:
        client.close()
    return answers


def heartbeats(options, running):
    script = server.write_wrk_script(running.home / "heartbeat.lua", "POST",
                                     {"session_id": running.create_session(), "type": "session_heartbeat"})
    return lambda: server.wrk(running, "/api/v1/session_heartbeat", script, options.seconds)


def report(samples, answers):
    rows, data = [], []
    for load, taken in samples.items():
        unit = "requests" if load.startswith("api") else "tokens"
        rates = {name: measure.rates(one, unit) for name, one in taken.items()}
        cpu = {name: [sample["cpu_seconds"] / sample[unit] for sample in one] for name, one in taken.items()}
        for name in ("store", "watched"):
            rows.append([load, name, measure.spread(rates[name]), measure.spread(rates["off"]),
                         measure.paired_ratio(rates[name], rates["off"]), measure.paired_ratio(cpu[name], cpu["off"]),
                         ", ".join(f"{measure.cores(taken[side], 'own_cpu'):.4f}" for side in (name, "off"))])
        data.append(dict(case=load, unit=unit, rates={name: measure.spread(one) for name, one in rates.items()}, raw=taken))
    return dict(data=dict(measurements=data, answered=len(answers)),
                tables=[dict(title="The embedded store, and ten browsers on the overview, against neither",
                             columns=["load", "server", "per second", "without the store, per second", "rate [95 %]",
                                      "server CPU [95 %]", "cores of the server alone: with, without"], rows=rows)],
                notes=[f"watched: {BROWSERS} connections ask for the {len(PAGE)} answers of the overview every "
                       f"{PAGE_SECONDS} s, {BROWSERS * len(PAGE) // PAGE_SECONDS} requests a second, on the same cores.",
                       "small and medium: the base models of tuft init-model. train and decode go through the Tinker SDK; its own time is "
                       "included everywhere."])
