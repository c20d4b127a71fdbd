"""G1: the torch back end on a GPU against Transformers + PEFT and its continuous batching: training and sampling of many
adapters in bf16 on a model of the shape of Llama 3.2 1B."""
import contextlib
import itertools
import math
import statistics
import time

import bench_model
import measure
import rivals

MODEL, RANK = "1b", 16
# (tenants, datums of each, tokens of each datum)
TRAINING = [(16, 1, 512), (1, 16, 512), (1, 1, 512), (64, 1, 128)]
MICRO_BATCHES = [1, 4, 16]
# (sequences, adapters, prompt)
SAMPLING = [(64, 1, 128), (64, 16, 128), (1, 1, 128), (256, 1, 128)]
NEW_TOKENS = 64
TRIAL_TOKENS = 16            # new tokens of a request that only chooses a side's setting
BATCH_TOKENS = 8192          # of a pass or step, as docs/torch.md advises
KV_BYTES = 4 << 30          # all programs share the GPU
SAMPLE_TOKENS = 8_192        # a training case is repeated up to this number of tokens
REPETITIONS_MAX = 3
LOSS_ERROR = 0.02            # relative, of bf16 activations


def train_title(case):
    return "{} x {} x {}".format(*case)


def sample_title(case):
    sequences, adapters, prompt = case
    return f"{sequences} of {prompt}, {adapters} adapter{'s' * (adapters > 1)}"


def train_request(case, **more):
    tenants, datums, length = case
    return dict(op="train_tenants", tenants=[[length] * datums] * tenants, rank=RANK, together=True, half=True,
                batch_tokens=BATCH_TOKENS, steps=max(1, SAMPLE_TOKENS // (tenants * datums * length)), **more)


def sample_request(case, **more):
    sequences, adapters, prompt = case
    return dict(op="sample", batch=sequences, adapters=adapters, prompt=prompt, new_tokens=NEW_TOKENS, rank=RANK,
                batch_tokens=BATCH_TOKENS, **more)


def runner(options, model):
    program = options.programs.parent / "bench" / "tuft_engine_runner"
    if not program.exists():
        raise measure.Skip(f"{program.name} is not built (it needs the engine and BLIS)")
    return measure.Child([program, "--model", model, "--threads", options.threads, "--dtype", "bf16", "--device",
                          options.device, "--kv-bytes", KV_BYTES, "--cuda-graphs", "yes"])


def settings_of(kind, case, side):
    """Returns the requests of a side by setting; none if it does not support the case."""
    if side == "ours":
        return {"": train_request(case) if kind == "train" else sample_request(case)}
    if kind == "train":
        sizes = [size for size in MICRO_BATCHES if size <= case[1]] if side == "transformers" else []
        return {f"micro-batch {size}": train_request(case, micro_batch=size) for size in sizes}
    if side == "transformers":
        return {way: sample_request(case, way=way) for way in (["loop", "mixed"] if case[1] > 1 else ["loop", "generate"])}
    return {"CUDA graphs": sample_request(case, way="graphs") | dict(op="continuous")} if case[1] == 1 else {}


def best_setting(side, child, settings):
    """Returns the fastest setting of a side, or None if all fail. Each is warmed up, which continuous batching does by
    itself."""
    rates = {}
    for setting, asked in settings.items():
        trial = {**asked, "new_tokens": TRIAL_TOKENS} if "new_tokens" in asked and len(settings) > 1 else asked
        with contextlib.suppress(measure.PeerFailed):
            if side != "continuous":
                child.ask(**trial)
            rates[setting] = rivals.tokens_per_second(child.ask(**trial)) if len(settings) > 1 else 1.0
    return max(rates, key=rates.get) if rates else None


def measure_case(kind, case, children, repetitions):
    """Returns the samples by side, each at its best setting, and the settings."""
    sources, best = {}, {}
    for side, child in list(children.items()):
        settings = settings_of(kind, case, side)
        setting = best_setting(side, child, settings)
        if setting is not None:
            best[side] = setting
            sources[side] = lambda child=child, asked=settings[setting]: child.ask(**asked)
    samples = measure.interleaved(sources, repetitions, warm_up=0)
    for side, child in list(children.items()):
        if side != "ours":
            with contextlib.suppress(measure.PeerFailed):
                child.ask(op="release")  # the memory that it keeps for later
    return samples, best


def agreement(kind, samples):
    """Returns how well the sides agree: losses must; with bf16 the largest of two near logits may differ."""
    if kind == "train":
        losses = {side: taken[0]["loss"] for side, taken in samples.items()}
        if max(losses.values()) > min(losses.values()) * (1 + LOSS_ERROR):
            raise RuntimeError(f"the first step's losses differ: {losses}")
        return None
    ours = samples["ours"][0]["first_tokens"]
    return {side: statistics.fmean(a == b for a, b in zip(taken[0]["first_tokens"], ours))
            for side, taken in samples.items()}


def check_device(options):
    """Skips the suite if this build has no libtorch or the device is not there, before the large model is made."""
    with runner(options, bench_model.make(options.scratch / "mini")) as probe:
        try:
            probe.ask(op="hello")
        except RuntimeError as error:
            raise measure.Skip(" ".join(str(error).split())) from error


def run(options):
    check_device(options)
    model = bench_model.make(options.scratch / MODEL, MODEL)
    data, begin = [], time.monotonic()
    arguments = ["--model", model, "--dtype", "bf16", "--device", options.device]
    with runner(options, model) as ours, \
            rivals.started(options, "transformers", "continuous", arguments=arguments) as (children, notes):
        hello = ours.ask(op="hello")
        cases = [case for pair in zip([("train", case) for case in TRAINING], [("sample", case) for case in SAMPLING])
                 for case in pair]
        for number, (kind, case) in enumerate(cases, 1):
            title = (train_title if kind == "train" else sample_title)(case)
            measure.progress.case(title, number, len(cases))
            if time.monotonic() - begin > 60 * options.minutes:
                notes.append(f"Not measured for lack of time: {title}.")
                continue
            samples, best = measure_case(kind, case, {"ours": ours, **children},
                                         min(options.repetitions, REPETITIONS_MAX))
            for side, taken in samples.items():
                rate = statistics.median(measure.rates(taken))
                measure.progress.line(f"{title}: {side} ({best[side] or 'as it is'}) {rate:,.0f} tokens/s")
            data.append(dict(kind=kind, case=case, title=title, best=best, samples=samples,
                             agreement=agreement(kind, samples)))
    return report(data, hello, notes)


def train_rows(data):
    for entry in data:
        for side, taken in entry["samples"].items():
            yield [entry["title"], side_title(entry, side), measure.spread(measure.rates(taken)), ratio(entry, side)]


def side_title(entry, side):
    setting = entry["best"][side]
    return rivals.TITLES.get(side, side) + (f", {setting}" if setting else "")


def ratio(entry, side):
    if side == "ours":
        return "-"
    return measure.paired_ratio(measure.rates(entry["samples"]["ours"]), measure.rates(entry["samples"][side]))


def sample_rows(data):
    for entry in data:
        for side, taken in entry["samples"].items():
            gaps = sorted(itertools.chain.from_iterable(sample["itl_ms"] for sample in taken))
            waits = [wait for sample in taken for wait in sample["ttft_ms"]]
            yield [entry["title"], side_title(entry, side), measure.spread(measure.rates(taken)), ratio(entry, side),
                   f"{statistics.median(waits):,.0f}", f"{statistics.median(gaps):,.1f}",
                   f"{gaps[math.floor(0.99 * (len(gaps) - 1))]:,.1f}", f"{entry['agreement'][side]:.0%}"]


def report(data, hello, notes):
    parts = {kind: [entry for entry in data if entry["kind"] == kind] for kind in ("train", "sample")}
    return dict(
        data=dict(model=hello, measurements=data),
        tables=[
            dict(title=f"Training, LoRA rank {RANK} on every layer and the head, bf16, {hello['parameters'] / 1e9:.2f} G parameters",
                 columns=["tenants x datums x tokens", "side", "tokens/s", "ours is faster [95 %]"],
                 rows=list(train_rows(parts["train"]))),
            dict(title=f"Sampling, {NEW_TOKENS} new tokens, greedy",
                 columns=["sequences of prompt tokens", "side", "tokens/s", "ours is faster [95 %]", "TTFT p50, ms",
                          "ITL p50, ms", "ITL p99, ms", "same first tokens"], rows=list(sample_rows(parts["sample"])))],
        notes=[*notes,
               "A training sample is a forward_backward and an optim_step of each tenant; the first half of every datum "
               "has no weight. The first step's losses agree within 2 %, else the run fails. Transformers trains one "
               "tenant after the other, at its best micro-batch.",
               "All sequences arrive at once; tokens/s counts new tokens until the last one and includes the prompts. "
               "All sides compute the log-probability of every token. Continuous batching uses paged SDPA attention, because "
               "flash-attn is not installed; it has as many pages as the requests need, and CUDA graphs, captured before.",
               "The programs share the GPU, and one works at a time."])
