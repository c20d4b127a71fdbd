"""T2: how a tenant with a long request delays tenants with short ones, in tuft and in servers without sharing."""
import contextlib
import statistics

import measure
import rivals
from suites import engine

SHORT = dict(op="fairness", light=15, length=32, rank=engine.RANK, batch_tokens=512, micro_batch=1, rounds=4)
HEAVY, SHARED_HEAVY = 200_000, 5_120  # tokens: for tuft alone, and for all sides
REPETITIONS_MAX = 3


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def jain(values):
    """Returns Jain's index: 1 if all are equal, 1/n if one has everything."""
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))


def run(options):
    with engine.runner(options) as ours, rivals.started(options, "transformers", "tuft") as (children, notes):
        def asker(child, tokens):
            return lambda: child.ask(**SHORT, heavy_tokens=tokens)

        ours.ask(**SHORT, heavy_tokens=0)
        for child in list(children.values()):
            with contextlib.suppress(measure.PeerFailed):
                child.ask(**SHORT, heavy_tokens=0)
        sources = {("ours", tokens): asker(ours, tokens) for tokens in (0, SHARED_HEAVY, HEAVY)}
        sources |= {(name, tokens): asker(child, tokens) for name, child in children.items()
                    for tokens in (0, SHARED_HEAVY)}
        samples = measure.interleaved(sources, min(options.repetitions, REPETITIONS_MAX), warm_up=0)
    return report(samples, notes)


def row(name, tokens, taken):
    milliseconds = [value for sample in taken for value in sample["milliseconds"]]
    passes = [value for sample in taken for value in sample.get("passes", [])]
    return [rivals.TITLES.get(name, name), f"{tokens:,}", f"{statistics.median(milliseconds):,.0f}",
            f"{percentile(milliseconds, 0.99):,.0f}",
            f"{statistics.median(passes):g}" if passes else "-", f"{percentile(passes, 0.99)}" if passes else "-",
            f"{max(passes)}" if passes else "-", f"{jain(milliseconds):.3f}"]


def report(samples, notes):
    waits = [f"{rivals.TITLES[name]} {HEAVY / (SHARED_HEAVY / seconds):,.0f} s" for name, seconds in first_waits(samples)]
    return dict(
        data=[dict(side=name, heavy_tokens=tokens, raw=taken) for (name, tokens), taken in samples.items()],
        tables=[dict(title=f"{SHORT['light']} tenants with requests of {SHORT['length']} tokens, one at a time and "
                           f"{SHORT['rounds']} each, while one long request, which came first, runs",
                     columns=["side", "tokens of the long request", "p50, ms", "p99, ms", "p50, passes", "p99, passes",
                              "most passes", "Jain index of the times"],
                     rows=[row(name, tokens, taken) for (name, tokens), taken in samples.items()])],
        notes=[*notes,
               "A pass has 512 tokens. The Jain index is that of the times of the short requests: 1 if all are equal.",
               "Peers run one request after the other in the order of arrival, as TuFT's server does (one lock around the "
               "model; measured without Ray and HTTP). Their long request is scaled down: the first of every tenant's "
               f"requests waits for all of it. At {HEAVY:,} tokens and the rate of this run it would wait " +
               (" and ".join(waits) or "-") + ".",
               "Expected before the first run: tuft at most 3 passes at p99 for any long request (each tenant's 32 tokens fit "
               "into the first pass of a turn: 15 x 32 of 512), about 400 to 600 ms; peers 6 to 12 s at p99 and 1 to 2 s at "
               "p50, with a Jain index near 0.5."])


def first_waits(samples):
    """Returns the seconds of the long request, from the wait of the first short one."""
    for (name, tokens), taken in samples.items():
        if name != "ours" and tokens == SHARED_HEAVY:
            yield name, statistics.median(sample["milliseconds"][0] for sample in taken) / 1e3
