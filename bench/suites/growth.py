"""How the engine's speed and memory grow: with the number of adapters, the length of sequences, and the batch; and what
short requests feel of a long one."""
import statistics

import measure
from suites import engine

TENANTS, TENANT_LENGTH = [1, 4, 16, 64, 256], 32
LENGTHS = [128, 512, 2048, 8192]
BATCHES = [1, 4, 16, 64]
ADAPTERS, ADAPTERS_BATCH = [1, 4, 16, 64], 64
FAIRNESS = dict(light=15, length=32, rank=engine.RANK, batch_tokens=512, rounds=8)
HEAVY_TOKENS = 200_000
REPETITIONS_MAX = 5  # a round takes minutes


def tenants_request(tenants):
    return dict(op="train_tenants", tenants=tenants, length=TENANT_LENGTH, rank=engine.RANK, batch_tokens=512,
                steps=max(1, 2048 // (tenants * TENANT_LENGTH)), together=True)


def length_request(length):
    return dict(op="train", lengths=[length], rank=engine.RANK, batch_tokens=512, steps=max(1, 1024 // length))


def batch_request(batch, adapters=1):
    return dict(engine.decode_request(batch), adapters=adapters)


def run(options):
    with engine.runner(options) as child:
        peaks = [child.ask(op="peaks")]
        requests = {("tenants", count): tenants_request(count) for count in TENANTS}
        requests |= {("length", length): length_request(length) for length in LENGTHS}
        requests |= {("batch", batch): batch_request(batch) for batch in BATCHES}
        requests |= {("adapters", count): batch_request(ADAPTERS_BATCH, count) for count in ADAPTERS}
        requests |= {("fairness", tokens): dict(FAIRNESS, op="fairness", heavy_tokens=tokens)
                     for tokens in (0, HEAVY_TOKENS)}
        sources = {key: lambda request=request: child.ask(**request) for key, request in requests.items()}
        samples = measure.interleaved(sources, min(options.repetitions, REPETITIONS_MAX))
        peaks.append(child.ask(op="peaks"))
    return report(samples, max(peak["gemm_gflops"] for peak in peaks), peaks)


def memory(taken):
    return f"{max(sample['peak_bytes'] for sample in taken) / 2**20:,.0f}"


def speed_table(samples, kind, title, column, extra=lambda case, rate: []):
    """The rates of one kind, each beside the first."""
    rows, first = [], None
    for (of, case), taken in samples.items():
        if of == kind:
            rate = measure.spread(measure.rates(taken))
            first = first or rate["median"]
            rows.append([case, rate, f"{rate['median'] / first:.2f} x", memory(taken), *extra(case, rate)])
    return dict(title=title, rows=rows, columns=[column, "tokens/s", "of the first", "peak memory, MiB"])


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def jain(values):
    """1: all the same; 1/n: one has everything."""
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))


def fairness_row(tokens, taken):
    milliseconds = [value for sample in taken for value in sample["milliseconds"]]
    passes = [value for sample in taken for value in sample["passes"]]
    return [f"{tokens:,}", f"{statistics.median(milliseconds):.0f}", f"{percentile(milliseconds, 0.99):.0f}",
            f"{statistics.median(passes):g}", max(passes), f"{jain(milliseconds):.3f}"]


def report(samples, gemm, peaks):
    def share(length, rate):
        gflops = engine.train_flops([length]) / length * rate["median"] * 1e-9
        return [f"{gflops / gemm:.0%}"]

    lengths = speed_table(samples, "length", "Training, one datum", "tokens of the datum", share)
    lengths["columns"].append("of GEMM peak")
    fair = [fairness_row(tokens, taken) for (kind, tokens), taken in samples.items() if kind == "fairness"]
    return dict(
        data=dict(peaks=peaks, samples=[dict(kind=kind, case=case, raw=taken)
                                        for (kind, case), taken in samples.items()]),
        tables=[
            speed_table(samples, "tenants", f"Training, a datum of {TENANT_LENGTH} tokens and an optimizer step for each "
                        f"adapter (rank {engine.RANK}, every layer)", "adapters"),
            lengths,
            speed_table(samples, "batch", "Decoding, one adapter", "sequences"),
            speed_table(samples, "adapters", f"Decoding, {ADAPTERS_BATCH} sequences", "adapters they are spread over"),
            dict(title=f"{FAIRNESS['light']} tenants with requests of {FAIRNESS['length']} tokens, one at a time, beside a "
                       "long request",
                 columns=["tokens of the long request", "p50, ms", "p99, ms", "p50, passes", "most passes",
                          "Jain index of the times"], rows=fair)],
        notes=["f32, the model of the suite engine. Peak memory is that of the whole process while it did the work: weights, "
               "adapters with gradients and moments, activations.",
               "A token of a long datum costs more, because attention looks at all before it: compare the share of the "
               "GEMM peak, which counts that work."])
