"""T1: training of many runs against Transformers + PEFT and against TuFT's own back end, in turns and in one run."""
import itertools
import time

import measure
import rivals
from suites import engine

LENGTHS = {"16 - 64": [32, 64, 16, 48], "128 - 512": [256, 512, 128, 384], "mixed": [64, 512, 16, 128]}
# The cases of {1, 4, 16, 64} tenants x lengths x {1, 8} datums that fit into a few minutes on two cores.
CASES = [("16 - 64", 1, 1), ("16 - 64", 16, 1), ("16 - 64", 64, 1), ("16 - 64", 1, 8),
         ("128 - 512", 1, 1), ("128 - 512", 4, 1), ("128 - 512", 1, 8), ("mixed", 16, 1)]
MICRO_BATCHES = [1, 4, 8]  # a request has at most eight datums, so 16 would equal 8
SAMPLE_TOKENS = 512        # a short case is repeated up to this number of tokens
REPETITIONS_MAX = 3


def tenants_of(case):
    kind, tenants, datums = case
    lengths = itertools.cycle(LENGTHS[kind])
    return [[next(lengths) for _ in range(datums)] for _ in range(tenants)]


def title(case):
    kind, tenants, datums = case
    return f"{tenants} x {datums} x {kind}"


def request(case, **more):
    tenants = tenants_of(case)
    return dict(op="train_tenants", tenants=tenants, rank=engine.RANK,
                steps=max(1, SAMPLE_TOKENS // sum(map(sum, tenants))), **more)


def our_request(case):
    return request(case, batch_tokens=512, together=True, half=True)


def their_requests(case):
    return {size: request(case, micro_batch=size) for size in MICRO_BATCHES if size <= case[2]}


def sides_of(ours, children, case):
    """Returns the sides that take turns in one case, by name, and the sweep of micro-batches of each peer."""
    def asker(child, asked):
        return lambda: child.ask(**asked)

    ours.ask(**our_request(case))
    sources, sweeps = {"ours": asker(ours, our_request(case))}, {}
    for name, child in list(children.items()):
        requests = their_requests(case)
        try:
            best, seen = rivals.best_of(child, requests)
        except measure.PeerFailed:
            continue
        sweeps[name] = {"best": best, "tokens_per_second": seen}
        sources[name] = asker(child, requests[best])
        if best != 1 and name == "tuft":
            sources["tuft, default"] = asker(child, requests[1])
    return sources, sweeps


def check_same_loss(case, samples):
    ours = samples["ours"][0]["loss"]
    for name, taken in samples.items():
        if abs(taken[0]["loss"] / ours - 1) > 1e-4:
            raise RuntimeError(f"{title(case)}: the first step's loss is {ours} here and {taken[0]['loss']} with {name}: "
                               "so the work is not the same")


def run(options):
    data = []
    with engine.runner(options) as ours, rivals.started(options, "transformers", "tuft") as (children, notes):
        peaks = [ours.ask(op="peaks")]
        begin = time.monotonic()
        for number, case in enumerate(CASES, 1):
            measure.progress.case(title(case), number, len(CASES))
            if time.monotonic() - begin > 60 * options.minutes:
                notes.append(f"Not measured for lack of time: {title(case)}.")
                continue
            sources, sweeps = sides_of(ours, children, case)
            samples = measure.interleaved(sources, min(options.repetitions, REPETITIONS_MAX), warm_up=0)
            check_same_loss(case, samples)
            data.append(dict(case=case, sweeps=sweeps, samples=samples))
        peaks.append(ours.ask(op="peaks"))
    return report(data, peaks, notes)


def compared(entry, name):
    """Returns rate and ratio of one side, or dashes."""
    if name not in entry["samples"]:
        return ["-", "-"]
    theirs, ours = measure.rates(entry["samples"][name]), measure.rates(entry["samples"]["ours"])
    return [measure.spread(theirs), measure.paired_ratio(ours, theirs)]


def rows_of(entry, gemm):
    case, samples, sweeps = entry["case"], entry["samples"], entry["sweeps"]
    rate = measure.spread(measure.rates(samples["ours"]))
    lengths = [length for of_tenant in tenants_of(case) for length in of_tenant]
    share = engine.train_flops(lengths, loss_share=0.5) / sum(lengths) * rate["median"] * 1e-9 / gemm
    entry |= dict(tokens_per_second=rate, share_of_gemm_peak=share)
    default = compared(entry, "tuft, default" if "tuft, default" in samples else "tuft")
    best = {name: f"micro-batch {sweep['best']}" for name, sweep in sweeps.items() if name in samples}
    speed = [title(case), sum(lengths), rate, f"{share:.0%}", *compared(entry, "transformers"),
             best.get("transformers", "-"), *default, *compared(entry, "tuft"), best.get("tuft", "-")]
    memory = [title(case), *(rivals.mebibytes(samples.get(name)) for name in ("ours", "transformers", "tuft"))]
    return speed, memory


def report(data, peaks, notes):
    gemm = max(peak["gemm_gflops"] for peak in peaks)
    speed, memory = zip(*(rows_of(entry, gemm) for entry in data))
    return dict(
        data=dict(peaks=peaks, measurements=data),
        tables=[
            dict(title=f"Training, LoRA rank {engine.RANK} on every layer, f32; GEMM peak of the same run {gemm:.0f} GFLOP/s",
                 columns=["tenants x datums x tokens", "tokens", "ours, tokens/s", "of GEMM peak",
                          "Transformers + PEFT, tokens/s", "ratio [95 %]", "at", "TuFT at its default, tokens/s",
                          "ratio [95 %]", "TuFT at its best, tokens/s", "ratio [95 %]", "at"], rows=speed),
            dict(title="Peak memory of the process, MiB", columns=["case", "ours", "Transformers + PEFT", "TuFT"],
                 rows=memory)],
        notes=[*notes,
               "A sample is a forward_backward and an optim_step of each tenant; the first half of every datum has no "
               "weight, like a prompt. The engine skips the head for it, and flops count the head for the other half only.",
               "The first step's loss must be equal in all programs within 1e-4, else the run fails. Peers run one tenant after "
               "the other (one adapter is active at a time). TuFT's micro-batch is 1 by default; with one datum per request "
               "no other is possible. Transformers gets its datums sorted by length. torch.cuda.reset_peak_memory_stats, "
               "which TuFT always calls, is replaced by a no-op, because it fails without a GPU.",
               "Adapters made one step before, which allocated the memory of gradients and moments.",
               "Reduced: no 4 tenants with short datums, no 16 or 64 with long ones, 8 datums for one tenant only.",
               "Expected before the first run: against Transformers 1.8 to 2.2 x, more (2.5 to 3 x) with one short datum "
               "a request; against TuFT 2.5 to 3 x on long datums, because it recomputes activations, and 4 x on "
               "short ones; 85 to 90 % of the GEMM peak from 512 tokens on, 55 % with one short datum; a quarter of "
               "the peers' memory."])
