"""What a small operation costs more at a worker that has joined (TLS over TCP) than at a local one (a unix socket)."""
import contextlib
import statistics
import time

import joined
import load_client
import measure
import server

OPERATIONS = 300  # of one sample, one after the other
SIDES = ["joined", "local"]
TITLES = {"forward": "forward, 8 tokens", "train": "forward_backward, 8 tokens", "step": "optim_step",
          "sample": "sample, 1 token"}


class Client:
    def __init__(self, running):
        self.run, self.sampler = load_client.Run(running), load_client.Sampler(running)

    def forward(self):
        self.run.result(self.run.submit_pass(forward_only=True))

    def train(self):
        self.run.result(self.run.submit_pass())

    def step(self):
        self.run.result(self.run.submit_step())

    def sample(self):
        self.sampler.sample(load_client.tokens(8, 1), 1)

    def sources(self):
        return {"forward": lambda: timed(self.forward), "train": lambda: timed(self.train), "step": lambda: timed(self.step),
                "sample": lambda: timed(self.sample)}


def timed(operation):
    times, begin = [], time.monotonic()
    for _ in range(OPERATIONS):
        one = time.monotonic()
        operation()
        times.append(1e3 * (time.monotonic() - one))
    return dict(seconds=time.monotonic() - begin, ms=times)


def run(options):
    directory = joined.certificates(options)
    with contextlib.ExitStack() as stack:
        servers = {"joined": stack.enter_context(joined.Server(options, "scale-joined", directory)),
                   "local": stack.enter_context(server.Server(options, "scale-local", model_size="tiny", model=dict(threads=1)))}
        servers["joined"].join_worker()
        sources = {side: Client(running).sources() for side, running in servers.items()}
        ordered = {(name, side): sources[side][name] for name in TITLES for side in SIDES}
        samples = measure.interleaved(ordered, options.repetitions)
    return report(samples)


def percentiles(taken):
    times = sorted(measure.flat([sample["ms"] for sample in taken]))
    return [f"{times[len(times) * share // 100]:.2f}" for share in (50, 99)]


def row(name, samples):
    medians = [[statistics.median(sample["ms"]) for sample in samples[name, side]] for side in SIDES]
    more = [a - b for a, b in zip(*medians)]
    return [TITLES[name], *percentiles(samples[name, "joined"]), *percentiles(samples[name, "local"]),
            measure.paired_ratio(*medians), measure.spread(more)]


def report(samples):
    return dict(
        data={f"{name}, {side}": taken for (name, side), taken in samples.items()},
        tables=[dict(title="A small operation at a worker that has joined over TLS on localhost, and at a local one, ms",
                     columns=["operation", "joined, p50", "joined, p99", "local, p50", "local, p99", "ratio of the p50s [95 %]",
                              "joined is slower by"],
                     rows=[row(name, samples) for name in TITLES])],
        notes=[f"Latency: one client, one operation at a time, {OPERATIONS} a sample: a POST and the poll that gets its result. "
               "Model tiny of tuft init-model, so the engine hardly counts. A network adds its round trip.",
               "Expected before the first run: 1 to 1.5 ms at a local worker, 0.2 ms more at a joined one: two more threads "
               "pass each message on, and encrypt it."])
