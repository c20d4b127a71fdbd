"""How the engine's speed and memory grow with the number of adapters, the length of sequences, and the batch."""
import measure
import rivals
from suites import engine

TENANTS, TENANT_LENGTH = [1, 4, 16, 64, 256], 32
LENGTHS = [128, 512, 2048, 8192]
BATCHES = [1, 4, 16, 64]
ADAPTERS, ADAPTERS_BATCH = [1, 4, 16, 64], 64
REPETITIONS_MAX = 3  # a round takes minutes


def tenants_request(tenants):
    return dict(op="train_tenants", tenants=[[TENANT_LENGTH]] * tenants, rank=engine.RANK, batch_tokens=512,
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
        sources = {key: lambda request=request: child.ask(**request) for key, request in requests.items()}
        samples = measure.interleaved(sources, min(options.repetitions, REPETITIONS_MAX))
        peaks.append(child.ask(op="peaks"))
    for number, (key, request) in enumerate(requests.items(), 1):  # a new process each, because a process keeps memory
        measure.progress.step(("peak memory", *key), number, len(requests))
        with engine.runner(options) as child:
            memory = child.ask(**{**request, "steps": 1})["peak_bytes"]
        for sample in samples[key]:
            sample["peak_bytes"] = memory
    return report(samples, max(peak["gemm_gflops"] for peak in peaks), peaks)


def speed_table(samples, kind, title, column, extra=lambda case, rate: []):
    """Returns the rates of one kind, each compared with the first."""
    rows, first = [], None
    for (of, case), taken in samples.items():
        if of == kind:
            rate = measure.spread(measure.rates(taken))
            first = first or rate["median"]
            rows.append([case, rate, f"{rate['median'] / first:.2f} x", rivals.mebibytes(taken), *extra(case, rate)])
    return dict(title=title, rows=rows, columns=[column, "tokens/s", "of the first", "peak memory, MiB"])


def report(samples, gemm, peaks):
    def share(length, rate):
        gflops = engine.train_flops([length]) / length * rate["median"] * 1e-9
        return [f"{gflops / gemm:.0%}"]

    lengths = speed_table(samples, "length", "Training, one datum", "tokens of the datum", share)
    lengths["columns"].append("of GEMM peak")
    return dict(
        data=dict(peaks=peaks, samples=[dict(kind=kind, case=case, raw=taken)
                                        for (kind, case), taken in samples.items()]),
        tables=[
            speed_table(samples, "tenants", f"Training, a datum of {TENANT_LENGTH} tokens and an optimizer step for each "
                        f"adapter (rank {engine.RANK}, every layer)", "adapters"),
            lengths,
            speed_table(samples, "batch", "Decoding, one adapter", "sequences"),
            speed_table(samples, "adapters", f"Decoding, {ADAPTERS_BATCH} sequences", "adapters of the sequences")],
        notes=["f32, the model of the suite engine. Peak memory is that of a separate process that did the work once: weights "
               "(114 MiB), adapters with gradients and moments, activations.",
               "A token of a long datum costs more, because attention covers all earlier tokens; compare the share of "
               "the GEMM peak, which counts that work.",
               "Expected before the first run: tokens/s with 16 adapters 1.3 x that with one, and no less with 256, at 21 MiB "
               "of memory an adapter; one datum of 8192 tokens at half the share of the GEMM peak of one of 512; decoding "
               "7 x with 64 sequences; 64 sequences over 64 adapters half the rate of one adapter, because each reads its "
               "own 4 MB per step."])
