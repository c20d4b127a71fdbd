"""More workers than this machine has cores: real servers and workers, whose engines sleep as long as an engine took here."""
import argparse
import contextlib
import json
import statistics

import joined
import measure
from suites import engine, scale_pair

COUNTS = [1, 2, 4, 8]
BATCHES = [1, 8, 16, 32, 64]
RECORDINGS = 3
SEQUENCES = scale_pair.SEQUENCES
LOADS = {name: scale_pair.LOADS[name] for name in ("train", "sessions", "sessions each")}


def record(options):
    """Returns the times of one engine with one thread, in microseconds, as bench/simulated_worker.cc reads them."""
    with engine.runner(argparse.Namespace(**{**vars(options), "threads": 1})) as child:
        def median(request, per):
            return statistics.median(1e6 * taken["seconds"] / per(taken)
                                     for taken in (child.ask(**request) for _ in range(RECORDINGS)))
        training = dict(engine.train_request([scale_pair.LENGTH] * 4), steps=2)
        steps = [(batch, median(dict(engine.decode_request(batch), prompt=1), lambda _: engine.NEW_TOKENS))
                 for batch in BATCHES]
        return {"train_token": median(training, lambda taken: taken["tokens"]), "steps": steps}


def started(options, directory, count, times):
    """Returns a server whose `count` workers have joined."""
    running = joined.Server(options, f"scale-simulated-{count}", directory, workers=count, metrics=True)
    program = options.programs.parent / "bench" / "tuft_simulated_worker"
    for _ in range(count):
        running.join_worker(program, {"TUFT_SIMULATED_TIMES": json.dumps(times)})
    return running


def run(options):
    times = record(options)
    directory = joined.certificates(options)
    with contextlib.ExitStack() as stack:
        servers = {count: stack.enter_context(started(options, directory, count, times)) for count in COUNTS}
        sources = {count: scale_pair.Load(running).sources() for count, running in servers.items()}
        ordered = {(name, count): sources[count][name] for name in LOADS for count in COUNTS}
        samples = measure.interleaved(ordered, options.repetitions)
    return report(samples, times)


def allowed(name, count, times):
    """Returns the ratio to one worker that the recorded times allow."""
    if name != "sessions":
        return count
    steps = dict(times["steps"])
    return steps[SEQUENCES] / steps[SEQUENCES // count]


def row(name, count, samples, times):
    taken, one = samples[name, count], samples[name, 1]
    rates = [measure.rates(taken), measure.rates(one)]
    return [LOADS[name], count, measure.spread(rates[0]), measure.paired_ratio(*rates), f"{allowed(name, count, times):.2f}",
            *(f"{measure.cores(taken, who):.2f}" for who in ("server_cpu", "client_cpu"))]


def report(samples, times):
    steps = ", ".join(f"{batch}: {took / 1e3:.1f}" for batch, took in times["steps"])
    return dict(
        data={f"{name}, {count}": taken for (name, count), taken in samples.items()},
        tables=[dict(title="Simulated workers that have joined, against one of them, tokens/s",
                     columns=["load", "workers", "tokens/s", "ratio to one [95 %]", "the recorded times allow",
                              "cores of the server", "of the clients"],
                     rows=[row(name, count, samples, times) for name in LOADS for count in COUNTS])],
        notes=["Simulated: each worker is a process that joined over TLS, and does all that a worker does, but with a tiny base "
               "model; each pass and decode step then sleeps until the time is over that it took an engine with one thread and "
               f"the model of the suite engine, just before: {times['train_token']:.0f} us for each token of training, and, "
               f"by the tokens of a decode step, these milliseconds: {steps}.",
               "The load is that of the two workers above. A step for fewer sequences takes longer for each, so 64 sessions at "
               "several workers cannot come to as many times the rate."])
