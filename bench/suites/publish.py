"""S2: from optim_step to the first token sampled with the new weights."""
import pathlib
import statistics

import measure
import rivals
import server
from suites import engine

REQUEST = dict(op="publish", rank=engine.RANK, length=64, prompt=64, batch_tokens=512)
PHASES = ["optim_step_ms", "publish_ms", "first_token_ms"]


def sdk(options, running):
    if not options.sdk_python:
        raise measure.Skip("a real server through the SDK: no interpreter with tinker; give one with --sdk-python")
    return measure.Child([options.sdk_python, pathlib.Path(__file__).parents[1] / "sdk_client.py"],
                         TINKER_BASE_URL=running.url, TINKER_API_KEY=server.KEY)


def through_the_server(options):
    with server.Server(options, "publish") as running, sdk(options, running) as client:
        asked = dict(REQUEST, op="publish")
        client.ask(**asked)
        return [client.ask(**asked) for _ in range(options.repetitions)]


def run(options):
    samples = {}
    with engine.runner(options) as ours, rivals.started(options, "tuft") as (children, notes):
        sources = {name: lambda child=child: child.ask(**REQUEST) for name, child in [("ours", ours), *children.items()]}
        samples = measure.interleaved(sources, options.repetitions)
    try:
        samples["sdk"] = through_the_server(options)
    except measure.Skip as reason:
        notes.append(f"Not measured: {reason}.")
    return report(samples, notes)


def row(name, taken):
    titles = {"ours": "ours, the engine", "sdk": "ours, a server through the SDK", "tuft": "TuFT: files, load_adapter"}
    phases = [f"{statistics.median(sample[phase] for sample in taken):.1f}" if phase in taken[0] else "-"
              for phase in PHASES]
    return [titles[name], *phases, measure.spread([1e3 * sample["seconds"] for sample in taken]),
            rivals.mebibytes(taken) if "peak_bytes" in taken[0] else "-"]


def report(samples, notes):
    return dict(
        data=samples,
        tables=[dict(title="From optim_step to the first token of a prompt of 64 tokens, ms",
                     columns=["side", "optim_step", "publish", "first token", "all", "peak MiB"],
                     rows=[row(name, taken) for name, taken in samples.items()])],
        notes=[*notes,
               f"LoRA rank {engine.RANK} on every layer, {engine.adapter_weights() * 4 / 2**20:.1f} MiB in f32. The engine's "
               "publish is the worker's copy in memory; the file is written later and is not timed.",
               "TuFT's sampler is vLLM, which does not run on this machine: a second Transformers + PEFT model in the same "
               "process loads the files and samples instead, and Ray and HTTP are left out. The server has a smaller model "
               "(tuft init-model, small) and includes the whole path: HTTP, futures, polls of the SDK.",
               "Expected before the first run: 2 ms optim_step, 3 ms publish, 65 ms for a prompt of 64 tokens; "
               "TuFT 15, 150 and 100 ms; through the SDK 100 ms more than the engine, because it makes three requests with "
               "polls between them."])
