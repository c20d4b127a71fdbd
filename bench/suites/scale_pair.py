"""Two workers of a base model against one, on this machine, each with one thread.

The cores are shared with the server and the client, and two threads that compute may slow each other down. So the same
work is done by two separate engines, too, which share nothing but the machine: their ratio is what the machine allows."""
import argparse
import concurrent.futures
import contextlib
import functools
import time

import load_client
import measure
import server
from suites import engine, polls

SIZE = "medium"
MODEL = dict(threads=1, kv_cache_bytes=512 << 20)
RUNS, LENGTH, STEPS = 16, 128, 5
SEQUENCES, PROMPT, NEW_TOKENS = 64, 32, 128
WORKERS = [2, 1]  # those compared
LOADS = {"train": f"training, {RUNS} runs", "sessions": f"sampling, {SEQUENCES} sessions",
         "session": f"sampling, {SEQUENCES} requests of one session",
         "sessions each": f"sampling, {SEQUENCES} sessions for each worker", "engine train": "separate engines, training",
         "engine decode": f"separate engines, decoding {SEQUENCES // 2} sequences each",
         "engine decode all": f"separate engines, decoding {SEQUENCES} sequences together"}


class Load:
    """The clients of one server, each with a thread and a connection of its own."""

    def __init__(self, running):
        self.running = running
        self.pool = concurrent.futures.ThreadPoolExecutor(SEQUENCES * running.workers)
        self.runs = [load_client.Run(running, number, LENGTH) for number in range(RUNS)]
        self.samplers = [load_client.Sampler(running, number) for number in range(SEQUENCES * running.workers)]
        together = self.samplers[0].id
        self.together = [load_client.Sampler(running, 1 + number, together) for number in range(SEQUENCES)]

    def timed(self, work, clients):
        """Runs `work`, which returns its tokens, for all clients at the same time."""
        all_cpu, own_cpu, client_cpu = self.running.cpu_seconds(), polls.own_cpu_seconds(self.running), time.process_time()
        drawn = self.drawn()
        begin = time.monotonic()
        tokens = sum(self.pool.map(work, clients))
        seconds = time.monotonic() - begin
        own_cpu = polls.own_cpu_seconds(self.running) - own_cpu
        sample = dict(seconds=seconds, tokens=tokens, server_cpu=own_cpu, client_cpu=time.process_time() - client_cpu,
                      workers_cpu=self.running.cpu_seconds() - all_cpu - own_cpu)
        drawn = [after - before for before, after in zip(drawn, self.drawn())]
        return sample | ({"busiest": max(drawn) / sum(drawn)} if sum(drawn) else {})

    def drawn(self):
        """Returns the tokens that each worker has drawn until now."""
        page, found = self.running.get_text("/metrics"), []
        for number in range(self.running.workers):
            label = f"bench#{number + 1}" if self.running.workers > 1 else "bench"
            found.append(polls.sum_of(page, "decode_tokens_processed_total", worker=label))
        return found

    def train(self):
        return self.timed(train, self.runs)

    def sample(self, samplers):
        return self.timed(draw, samplers)

    def sources(self):
        return {"train": self.train, "sessions": lambda: self.sample(self.samplers[:SEQUENCES]),
                "session": lambda: self.sample(self.together), "sessions each": lambda: self.sample(self.samplers)}


def train(run):
    for _ in range(STEPS):
        run.step()
    return STEPS * LENGTH


def draw(sampler):
    return sampler.sample(load_client.tokens(PROMPT, sampler.number), NEW_TOKENS)


def started(options, workers):
    running = server.Server(options, f"scale-{workers}", model_size=SIZE, metrics=True, model=dict(MODEL, workers=workers))
    running.workers = workers
    return running


def at_once(children, request):
    """Returns one sample of all engines together."""
    with concurrent.futures.ThreadPoolExecutor(len(children)) as pool:
        begin = time.monotonic()
        taken = list(pool.map(lambda child: child.ask(**request), children))
    return dict(seconds=time.monotonic() - begin, tokens=sum(one["tokens"] for one in taken))


def engines(options, stack):
    """Returns sources that do half of the work each with two engines, or all of it with one; none without the program."""
    alone = argparse.Namespace(**{**vars(options), "threads": 1})
    try:
        children = [stack.enter_context(engine.runner(alone)) for _ in range(max(WORKERS))]
    except measure.Skip:
        return {}
    requests = {"engine train": lambda _: dict(engine.train_request([LENGTH] * 4), steps=2 * STEPS),
                "engine decode": lambda _: engine.decode_request(SEQUENCES // 2),
                "engine decode all": lambda count: engine.decode_request(SEQUENCES // count)}
    return {(name, count): functools.partial(at_once, children[:count], request(count))
            for name, request in requests.items() for count in WORKERS}


def run(options):
    with contextlib.ExitStack() as stack:
        loads = {count: Load(stack.enter_context(started(options, count))) for count in WORKERS}
        sources = {(name, count): take for count, load in loads.items() for name, take in load.sources().items()}
        sources |= engines(options, stack)
        # The sides of one load follow each other.
        ordered = {(name, count): sources[name, count] for name in LOADS for count in WORKERS if (name, count) in sources}
        samples = measure.interleaved(ordered, options.repetitions)
    return report(samples)


def row(name, samples):
    two, one = (samples[name, count] for count in WORKERS)
    cores, busiest = ["-"] * 3, "-"
    if "server_cpu" in two[0]:
        cores = [f"{measure.cores(two, who):.2f}, {measure.cores(one, who):.2f}" for who in ("workers_cpu", "server_cpu", "client_cpu")]
    if "busiest" in two[0]:
        busiest = measure.spread([100 * sample["busiest"] for sample in two])
    rates = [measure.rates(two), measure.rates(one)]
    return [LOADS[name], *map(measure.spread, rates), measure.paired_ratio(*rates), *cores, busiest]


def report(samples):
    names = [name for name in LOADS if (name, WORKERS[0]) in samples]
    return dict(
        data={f"{name}, {count}": taken for (name, count), taken in samples.items()},
        tables=[dict(title=f"Two workers against one, each with one thread; model {SIZE} of tuft init-model, tokens/s",
                     columns=["load", "two", "one", "ratio [95 %]", "cores of the workers: two, one", "of the server",
                              "of the client", "two: drawn by the busier one, %"],
                     rows=[row(name, samples) for name in names])],
        notes=[f"Training: each run has a datum of {LENGTH} tokens, and one forward_backward and one optim_step in flight "
               f"all the time, {STEPS} steps a sample. Sampling: all {SEQUENCES} sequences are asked for at once, {NEW_TOKENS} "
               f"new tokens after a prompt of {PROMPT}.",
               "Separate engines: two programs at once, each with one thread and the work of one, against one of them, with "
               "the model of the suite engine. They share nothing but the machine, so this is what its cores allow; a ratio of "
               "two workers is to be compared with it. A step of one worker serves 64 sequences, one of each of two 32, which takes "
               "more time for a token: so the last row is what 64 sequences allow, and the one before what as many for each "
               "worker allow.",
               "Expected before the first run: training 1.7 (the server and the client take a tenth of the two cores), "
               "sampling 1.5 to 1.7 (a hash of its id chose the worker of a session then, and the busier one had up to 40 "
               "of 64), separate engines 1.8 to 1.95."])
