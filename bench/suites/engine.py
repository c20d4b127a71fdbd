"""The engine alone: training and decoding through its ports, compared with the peaks of the machine."""
import itertools
import statistics

import bench_model
import measure

RANK = 16
TRAIN_CASES = {
    "1 datum of 32": [32],
    "8 datums of 128": [128] * 8,
    "16 datums of 8 to 128": [8 * (1 + i) for i in range(16)],
}
TENANTS, TENANT_LENGTHS = [1, 4, 16, 64], [8, 32, 128]
DECODE_BATCHES = [1, 8, 32]
PROMPT, NEW_TOKENS = 8, 33


def train_flops(lengths, loss_share=1.0):
    """Returns the operations of one step: forward and the gradient of activations cost 4 per weight and token; adapters
    6; causal attention 2 T (forward) + 4 T (backward) per query channel and layer. Recomputation does not count as
    work, nor does the head for tokens without a loss."""
    model = bench_model.counts()
    tokens = sum(lengths)
    channels = model["num_attention_heads"] * model["head_dim"]
    attention = sum(6 * length * length for length in lengths) * channels * model["num_hidden_layers"]
    return tokens * (4 * (model["linear"] + loss_share * model["head"]) + 6 * adapter_weights()) + attention


def adapter_weights():
    total = 0
    for name, shape in bench_model.shapes(bench_model.SIZES["mini"]):
        if len(shape) == 2:  # counts embed_tokens instead of lm_head, which has the same shape
            total += RANK * sum(shape)
    return total


def decode_bytes(dtype, batch, context=PROMPT + NEW_TOKENS / 2, adapters=1):
    """Returns the minimum bytes that one step reads: every weight once, and the keys and values of the sequences."""
    model = bench_model.counts()
    width = 2 if dtype == "bf16" else 4
    channels = model["num_key_value_heads"] * model["head_dim"]
    keys_values = batch * context * 2 * channels * model["num_hidden_layers"] * 4
    return (model["linear"] + model["head"]) * width + 4 * adapters * adapter_weights() + keys_values


def runner(options, dtype="f32"):
    program = options.programs.parent / "bench" / "tuft_engine_runner"
    if not program.exists():
        raise measure.Skip(f"{program.name} is not built (it needs the engine and BLIS)")
    return measure.Child([program, "--model", bench_model.make(options.scratch / "mini"), "--threads", options.threads,
                          "--dtype", dtype])


def train_request(lengths):
    return dict(op="train", lengths=lengths, rank=RANK, batch_tokens=512, steps=max(1, 1024 // sum(lengths)))


def tenants_request(tenants, length, together):
    return dict(op="train_tenants", tenants=[[length]] * tenants, rank=RANK, batch_tokens=512,
                steps=max(1, 1024 // (tenants * length)), together=together)


def decode_request(batch):
    return dict(op="decode", batch=batch, prompt=PROMPT, new_tokens=NEW_TOKENS, rank=RANK)


def run(options):
    parts = options.parts or ["train", "tenants", "decode"]
    with runner(options) as f32, runner(options, "bf16") as bf16:
        peaks = [f32.ask(op="peaks")]
        sources = {}
        for name, lengths in TRAIN_CASES.items() if "train" in parts else ():
            for dtype, child in (("f32", f32), ("bf16", bf16)):
                sources["train", name, dtype] = lambda child=child, lengths=lengths: child.ask(**train_request(lengths))
        for case in itertools.product(TENANTS, TENANT_LENGTHS, (True, False)) if "tenants" in parts else ():
            sources["tenants", case, "f32"] = lambda case=case: f32.ask(**tenants_request(*case))
        for batch in DECODE_BATCHES if "decode" in parts else ():
            for dtype, child in (("f32", f32), ("bf16", bf16)):
                sources["decode", batch, dtype] = lambda child=child, batch=batch: child.ask(**decode_request(batch))
        samples = measure.interleaved(sources, options.repetitions)
        peaks.append(f32.ask(op="peaks"))
    return report(samples, {key: max(peak[key] for peak in peaks) for key in peaks[0]}, peaks)


def gains(samples, tenants, length):
    """Returns medians of the ratios of adjacent samples, which saw the same state of the machine."""
    pairs = list(zip(samples["tenants", (tenants, length, False), "f32"],
                     samples["tenants", (tenants, length, True), "f32"]))
    return [f"{statistics.median(alone[key] / shared[key] for alone, shared in pairs):.2f} x"
            for key in ("seconds", "cpu_seconds")]


def report(samples, best, peaks):
    gemm, read = best["gemm_gflops"], best["read_gigabytes_per_second"]
    train_rows, decode_rows, tenant_rates, data = [], [], {}, []
    for (kind, case, dtype), taken in samples.items():
        rate = measure.spread(measure.rates(taken))
        cpu = sum(sample["cpu_seconds"] for sample in taken) / sum(sample["seconds"] for sample in taken)
        row = dict(kind=kind, case=case, dtype=dtype, tokens_per_second=rate, cores_used=round(cpu, 2), raw=taken)
        if kind == "train":
            lengths = TRAIN_CASES[case]
            gflops = train_flops(lengths) / sum(lengths) * rate["median"] * 1e-9
            row |= dict(gflops=gflops, share_of_gemm_peak=gflops / gemm)
            train_rows.append([case, dtype, rate, f"{gflops:.0f}", f"{gflops / gemm:.0%}", f"{cpu:.2f}"])
        elif kind == "tenants":
            tenant_rates[case] = rate
        else:
            bandwidth = decode_bytes(dtype, case) * rate["median"] / case * 1e-9
            row |= dict(gigabytes_per_second=bandwidth, share_of_read_peak=bandwidth / read)
            decode_rows.append([f"batch {case}", dtype, rate, f"{bandwidth:.1f}", f"{bandwidth / read:.0%}",
                                f"{cpu:.2f}"])
        data.append(row)
    return dict(
        data=dict(peaks=peaks, measurements=data),
        tables=[
            dict(title=f"Peaks of this machine in the same run: {gemm:.0f} GFLOP/s (f32 GEMM), {read:.1f} GB/s (read)",
                 columns=[], rows=[]),
            dict(title=f"Training, LoRA rank {RANK} on every layer, forward_backward + optim_step",
                 columns=["case", "weights", "tokens/s", "GFLOP/s", "of GEMM peak", "cores"], rows=train_rows),
            dict(title="Runs with a datum each, f32: forward_backward and optim_step of all together, and one after the "
                       "other",
                 columns=["runs", "datum", "together, tokens/s", "one after the other, tokens/s", "together is faster",
                          "the same in CPU time"],
                 rows=[[tenants, f"{length} tokens", tenant_rates[tenants, length, True],
                        tenant_rates[tenants, length, False], *gains(samples, tenants, length)]
                       for tenants, length, together in tenant_rates if together]),
            dict(title="Decoding with an adapter, through the sampler",
                 columns=["case", "weights", "tokens/s", "GB/s", "of read peak", "cores"], rows=decode_rows)],
        notes=["The model is a Llama of 29.9 M weights (hidden 512, 8 layers, vocabulary 8192, tied): 120 MB in f32, "
               "60 MB in bf16. A large cache holds a part of it, so the share of the read peak can exceed 100 %.",
               "Shared passes gain what the GEMM gains from more rows. Expected before the first run, from the rates of "
               "GEMMs of 8, 32, 128 and 512 rows without the constant part (adapters, optimizer): 1.8 to 2.6 x for "
               "datums of 8 tokens, 1.15 to 1.35 x for 32.",
               "Flops count useful work: 4 per weight and token (the base is frozen), no recomputation."])
