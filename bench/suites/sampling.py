"""S1: sampling with several adapters against Transformers + PEFT, its continuous batching, and llama.cpp."""
import contextlib
import statistics
import time

import measure
import rivals
from suites import engine
from suites.fairness import percentile

# (sequences, adapters, prompt); 0 adapters: the base model. The cases of {1, 8, 16} x {1, 4, 16} x {64, 512} that fit
# the time.
CASES = [(1, 1, 64), (16, 1, 64), (16, 16, 64), (8, 1, 64), (16, 4, 64), (1, 1, 512), (1, 0, 64), (16, 0, 64),
         (16, 16, 512)]
NEW_TOKENS = 64
BATCH_TOKENS = {"ours": 256, "llama.cpp": 512, "continuous": 512}  # per step; our default, and llama.cpp's
REPETITIONS_MAX = 3
SLOW_SECONDS = 12  # a peer with a slower first sample gets no other in that case


def title(case):
    sequences, adapters, prompt = case
    return f"{sequences} of {prompt}, " + (f"{adapters} adapter{'s' * (adapters > 1)}" if adapters else "base model")


def request(case, side, **more):
    sequences, adapters, prompt = case
    return dict(op="sample", batch=sequences, adapters=adapters, prompt=prompt, new_tokens=NEW_TOKENS, rank=engine.RANK,
                batch_tokens=BATCH_TOKENS.get(side, 0), **more)


def requests_of(case, side):
    """Returns the requests by setting; none if the peer does not support the case."""
    _, adapters, _ = case
    if side == "transformers":
        ways = ["loop", "mixed"] if adapters > 1 else ["loop", "generate"]
        return {way: request(case, side, way=way) for way in ways} if adapters else {}
    if side == "continuous":
        return {"": request(case, side) | dict(op="continuous")} if adapters == 1 else {}
    return {"": request(case, side)}


def measure_case(case, children, repetitions):
    """Returns the samples by side, each at its best setting, and the settings."""
    sources, settings, first = {}, {}, {}
    for side, child in list(children.items()):
        requests = requests_of(case, side)
        if not requests:
            continue
        try:
            asked = {setting: child.ask(**each) for setting, each in requests.items()}
        except measure.PeerFailed:
            continue
        setting = max(asked, key=lambda name: rivals.tokens_per_second(asked[name]))
        settings[side] = {"best": setting,
                          "tokens_per_second": {name: rivals.tokens_per_second(one) for name, one in asked.items()}}
        first[side] = asked[setting]
        if first[side]["seconds"] < SLOW_SECONDS:
            sources[side] = lambda child=child, asked=requests[setting]: child.ask(**asked)
    samples = measure.interleaved(sources, repetitions, warm_up=0)
    for side, sample in first.items():
        if side in sources and side not in samples:
            continue  # it has failed since
        samples.setdefault(side, [sample])
        if sample["first_tokens"] != first["ours"]["first_tokens"]:
            raise RuntimeError(f"{title(case)}: {side} samples other first tokens, so the work is not the same")
    return samples, settings


def warm_up(child):
    child.ask(**request((1, 1, 64), "ours", way="loop"))


def run(options):
    data = []
    with engine.runner(options) as ours, rivals.started(options, "transformers", "continuous",
                                                        "llama.cpp") as (children, notes):
        peaks = [ours.ask(op="peaks")]
        warm_up(ours)
        for child in list(children.values()):
            with contextlib.suppress(measure.PeerFailed):
                warm_up(child)
        begin = time.monotonic()
        for number, case in enumerate(CASES, 1):
            measure.progress.case(title(case), number, len(CASES))
            if time.monotonic() - begin > 60 * options.minutes:
                notes.append(f"Not measured for lack of time: {title(case)}.")
                continue
            samples, settings = measure_case(case, {"ours": ours, **children},
                                             min(options.repetitions, REPETITIONS_MAX))
            data.append(dict(case=case, settings=settings, samples=samples))
        peaks.append(ours.ask(op="peaks"))
    return report(data, peaks, notes)


def rows_of(entry, read):
    case, samples = entry["case"], entry["samples"]
    ours = measure.rates(samples["ours"])
    for side, taken in samples.items():
        rate = measure.rates(taken)
        gaps = [gap for sample in taken for gap in sample["itl_ms"]]
        waits = [wait for sample in taken for wait in sample["ttft_ms"]]
        share = "-"
        if side == "ours":
            sequences, adapters, prompt = case
            step_bytes = engine.decode_bytes("f32", sequences, prompt + NEW_TOKENS / 2, adapters)
            share = f"{step_bytes / (statistics.median(gaps) * 1e6) / read:.0%}"
        setting = entry["settings"][side]["best"]
        yield [title(case), rivals.TITLES.get(side, side) + (f", {setting}" if setting else ""), measure.spread(rate),
               "-" if side == "ours" else measure.paired_ratio(ours, rate),
               f"{statistics.median(waits):,.0f}", f"{percentile(waits, 0.99):,.0f}",
               f"{statistics.median(gaps):,.1f}", f"{percentile(gaps, 0.99):,.1f}", share, rivals.mebibytes(taken)]


def report(data, peaks, notes):
    read = max(peak["read_gigabytes_per_second"] for peak in peaks)
    return dict(
        data=dict(peaks=peaks, measurements=data),
        tables=[dict(title=f"{NEW_TOKENS} new tokens, greedy, LoRA rank {engine.RANK} on every layer, f32; read peak of the "
                           f"same run {read:.1f} GB/s",
                     columns=["sequences of prompt tokens", "side", "tokens/s", "ours is faster [95 %]", "TTFT p50, ms",
                              "TTFT p99, ms", "ITL p50, ms", "ITL p99, ms", "of read peak", "peak MiB"],
                     rows=[row for entry in data for row in rows_of(entry, read)])],
        notes=[*notes,
               "All sequences arrive at once. tokens/s counts new tokens from then to the last one, and includes the time of the "
               "prompts. The first tokens must be equal in all programs, else the run fails. The KV cache is f32 in all.",
               "Transformers: with one adapter the faster of forward() in a loop and generate(); with several adapters the faster "
               "of one batch per adapter in turn and one batch with PEFT's adapter_names (\"mixed\"). Its continuous "
               "batching has one adapter, and is timed from the first request to the last token, without the start of its "
               "loop. llama.cpp decodes with one set of adapters at a time, so every step has one batch per adapter.",
               "The share of the read peak counts the bytes that a step must read (weights once, each adapter, keys and "
               "values) in the median gap.",
               f"Reduced: 64 new tokens instead of 128, {len(CASES)} cases. A peer whose first sample took over "
               f"{SLOW_SECONDS} s has no other sample.",
               "Expected before the first run: against Transformers 6 x with one sequence, 3 x with 16, over 6 x with 16 "
               "adapters; continuous batching on a CPU slower than generate(); against llama.cpp 0.8 to 1.2 x with one "
               "adapter, and over 4 x with 16; 60 to 65 % of the read peak with one sequence; TTFT of 16 x 512 tokens "
               "5 s, because prompts are fed 256 tokens per step, together with decoding."])
