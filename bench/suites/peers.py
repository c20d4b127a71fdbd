"""The same model file, tokens and adapter shape in Transformers + PEFT, in turns with the engine."""
import contextlib
import subprocess

import bench_model
import measure
from suites import engine

MICRO_BATCHES = [1, 4, 8, 16]
PROGRAM = measure.ROOT / "bench" / "peers" / "transformers_peft.py"


def named(threads):
    return "1 thread" if threads == 1 else f"{threads} threads"


def variants(threads):
    """Ways to run the peer. OpenMP threads that spin while they wait help on idle cores and hurt on shared ones."""
    found = {named(threads): (threads, "ACTIVE"), named(threads) + ", passive wait": (threads, "PASSIVE")}
    return found if threads == 1 else {**found, named(1): (1, "PASSIVE")}


def start(options, threads, wait):
    return measure.Child([options.python, PROGRAM, "--model", bench_model.make(options.scratch / "mini"),
                          "--threads", threads], rests=True, OMP_NUM_THREADS=str(threads), OMP_WAIT_POLICY=wait)


def check(options):
    if not options.python:
        raise measure.Skip("no interpreter with torch, transformers and peft: give one with --python, for example "
                           "after `python3 -m venv v && v/bin/pip install torch transformers peft`")
    run = subprocess.run([options.python, PROGRAM, "--check"], capture_output=True, text=True)
    if run.returncode != 0:
        raise measure.Skip(f"{options.python}: {run.stderr.strip().splitlines()[-1]}")


def best_of(children, requests):
    """The fastest pair of variant and request. A variant that was hopeless at its first request (a third of the best
    so far) is not asked again: spinning threads on busy cores can take minutes."""
    seen = {}
    for variant, child in reversed(children.items()):
        for warm_up, (name, request) in zip([True] + [False] * len(requests), requests.items()):
            for _ in range(1 + warm_up):
                sample = child.ask(**request)
            seen[variant, name] = sample["tokens"] / sample["seconds"]
            if warm_up and seen[variant, name] < max(seen.values()) / 3:
                break
    best = max(seen, key=seen.get)
    return best, {", ".join(key): rate for key, rate in seen.items()}


def train_requests(lengths):
    return {f"micro-batch {size}": dict(op="train", lengths=lengths, rank=engine.RANK, micro_batch=size,
                                        steps=max(1, 256 // sum(lengths)))
            for size in MICRO_BATCHES if size <= len(lengths)}


def check_same_loss(case, samples):
    difference = samples["best"][0]["loss"] / samples["tuft"][0]["loss"] - 1
    if abs(difference) > 1e-4:
        raise RuntimeError(f"{case}: the losses of the first step differ by {difference:.1e}: not the same work")
    return difference


def race(options, ours, children, our_request, their_requests):
    (variant, name), sweep = best_of(children, their_requests)
    sources = {"tuft": lambda: ours.ask(**our_request),
               "best": lambda: children[variant].ask(**their_requests[name])}
    default = named(options.threads)
    if "micro-batch 1" in their_requests and (variant, name) != (default, "micro-batch 1"):
        sources["one"] = lambda: children[default].ask(**their_requests["micro-batch 1"])
    samples = measure.interleaved(sources, options.repetitions)
    return f"{variant}, {name}" if name else variant, sweep, samples


def run(options):
    check(options)
    data, train_rows, decode_rows = [], [], []
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(engine.runner(options))
        children = {name: stack.enter_context(start(options, *how)) for name, how in variants(options.threads).items()}
        hello = next(iter(children.values())).ask(op="hello")
        for case, lengths in engine.TRAIN_CASES.items():
            requests = engine.train_request(lengths), train_requests(lengths)
            setting, sweep, samples = race(options, ours, children, *requests)
            difference = check_same_loss(case, samples)
            entry, row = compare(samples)
            data.append(dict(kind="train", case=case, peer_setting=setting, sweep=sweep, loss_difference=difference,
                             **entry))
            train_rows.append([case, setting, *row, f"{difference:.0e}"])
        for batch in engine.DECODE_BATCHES:
            request = engine.decode_request(batch)
            setting, sweep, samples = race(options, ours, children, request, {"": request})
            entry, row = compare(samples)
            data.append(dict(kind="decode", case=batch, peer_setting=setting, sweep=sweep, **entry))
            decode_rows.append([f"batch {batch}", setting, *row])
    columns = ["case", "best setting of the peer", "tuft tokens/s", "Transformers + PEFT tokens/s", "ratio [95 %]",
               "ratio of CPU time"]
    return dict(data=dict(peer=hello, measurements=data),
                tables=[dict(title="Training (f32, LoRA rank 16 on every layer)", columns=[*columns, "loss difference"],
                             rows=train_rows),
                        dict(title="Decoding (f32, greedy, adapter not merged, KV cache)", columns=columns,
                             rows=decode_rows)],
                notes=["Versions: " + ", ".join(f"{name} {version}" for name, version in hello["versions"].items()) +
                       f"; {named(options.threads)} for the engine.",
                       "The peer gets the fastest setting of a sweep and datums sorted by length; its time holds no "
                       "tokenising, generate() or Trainer overhead. The JSON file has the sweep, and the ratio to "
                       "micro-batch 1 with all threads."])


def compare(samples):
    ours, best = measure.rates(samples["tuft"]), measure.rates(samples["best"])
    ratio = measure.paired_ratio(ours, best)
    cpu = measure.paired_ratio(*([sample["cpu_seconds"] / sample["tokens"] for sample in samples[name]]
                                 for name in ("best", "tuft")))
    entry = dict(tuft=measure.spread(ours), peer=measure.spread(best), ratio=ratio, cpu_ratio=cpu, raw=samples)
    if "one" in samples:
        entry["ratio_to_micro_batch_one"] = measure.paired_ratio(ours, measure.rates(samples["one"]))
    return entry, [measure.spread(ours), measure.spread(best), ratio, cpu]
