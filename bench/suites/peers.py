"""The same model file, tokens and adapter shape in Transformers + PEFT, in turns with the engine."""
import subprocess

import bench_model
import measure
from suites import engine

MICRO_BATCHES = [1, 4, 8, 16]
PROGRAM = measure.ROOT / "bench" / "peers" / "transformers_peft.py"


def peer(options):
    if not options.python:
        raise measure.Skip("no interpreter with torch, transformers and peft: give one with --python, for example "
                           "after `python3 -m venv v && v/bin/pip install torch transformers peft`")
    check = subprocess.run([options.python, PROGRAM, "--check"], capture_output=True, text=True)
    if check.returncode != 0:
        raise measure.Skip(f"{options.python}: {check.stderr.strip().splitlines()[-1]}")
    return measure.Child([options.python, PROGRAM, "--model", bench_model.make(options.scratch / "mini"),
                          "--threads", options.threads], OMP_NUM_THREADS=str(options.threads))


def peer_train(child, lengths, micro_batch):
    return child.ask(op="train", lengths=lengths, rank=engine.RANK, micro_batch=micro_batch,
                     steps=max(1, 256 // sum(lengths)))


def best_micro_batch(child, lengths):
    """Found before the race, so that the peer runs it at its best."""
    seen = {}
    for micro_batch in [size for size in MICRO_BATCHES if size <= len(lengths)]:
        peer_train(child, lengths, micro_batch)
        sample = peer_train(child, lengths, micro_batch)
        seen[micro_batch] = sample["tokens"] / sample["seconds"]
    return max(seen, key=seen.get), seen


def run(options):
    data, train_rows, decode_rows = [], [], []
    with engine.runner(options) as ours, peer(options) as theirs:
        hello = theirs.ask(op="hello")
        for case, lengths in engine.TRAIN_CASES.items():
            best, sweep = best_micro_batch(theirs, lengths)
            sources = {"tuft": lambda: ours.ask(**engine.train_request(lengths)),
                       "best": lambda: peer_train(theirs, lengths, best)}
            if best != 1 and len(lengths) > 1:
                sources["one"] = lambda: peer_train(theirs, lengths, 1)
            samples = measure.interleaved(sources, options.repetitions)
            agreement = samples["best"][0]["loss"] / samples["tuft"][0]["loss"] - 1
            if abs(agreement) > 1e-4:
                raise RuntimeError(f"{case}: the losses of the first step differ by {agreement:.1e}: not the same work")
            entry, row = compare(samples)
            data.append(dict(kind="train", case=case, micro_batch=best, sweep=sweep, loss_difference=agreement, **entry))
            train_rows.append([f"{case} (its micro-batch {best})", *row, f"{agreement:.0e}"])
        for batch in engine.DECODE_BATCHES:
            sources = {"tuft": lambda: ours.ask(**engine.decode_request(batch)),
                       "best": lambda: theirs.ask(**{**engine.decode_request(batch), "new_tokens": 17})}
            entry, row = compare(measure.interleaved(sources, options.repetitions))
            data.append(dict(kind="decode", case=batch, **entry))
            decode_rows.append([f"batch {batch}", *row])
    columns = ["case", "tuft tokens/s", "Transformers + PEFT tokens/s", "ratio [95 %]", "ratio of CPU time"]
    return dict(data=dict(peer=hello, measurements=data),
                tables=[dict(title="Training (f32, LoRA rank 16 on every layer)", columns=[*columns, "loss difference"],
                             rows=train_rows),
                        dict(title="Decoding (f32, greedy, adapter not merged, KV cache)", columns=columns,
                             rows=decode_rows)],
                notes=["Versions: " + ", ".join(f"{name} {version}" for name, version in hello["versions"].items()) +
                       f"; {hello['threads']} threads for both.",
                       "The peer gets the fastest micro-batch of a sweep and datums sorted by length; its time holds no "
                       "tokenising, generate() or Trainer overhead. Both compute the same loss to the digits shown."])


def compare(samples):
    ours, best = measure.rates(samples["tuft"]), measure.rates(samples["best"])
    ratio = measure.paired_ratio(ours, best)
    cpu = measure.paired_ratio(*([sample["cpu_seconds"] / sample["tokens"] for sample in samples[name]]
                                 for name in ("best", "tuft")))
    entry = dict(tuft=measure.spread(ours), peer=measure.spread(best), ratio=ratio, cpu_ratio=cpu, raw=samples)
    if "one" in samples:
        entry["ratio_to_micro_batch_one"] = measure.paired_ratio(ours, measure.rates(samples["one"]))
    return entry, [measure.spread(ours), measure.spread(best), ratio, cpu]
