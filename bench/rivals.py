"""The peers of the engine: programs in bench/peers that speak the lines of JSON of tuft_engine_runner."""
import contextlib
import os
import pathlib
import subprocess

import bench_model
import measure

PEERS = measure.ROOT / "bench" / "peers"
# An OpenMP thread that spins while it waits is best on idle cores where all work is on one thread's pool (the sweep of
# 2026-11-21 says so of Transformers); continuous batching works on a thread of its own, beside which another pool would
# spin.
NEEDS = {
    "transformers": ("transformers_peft.py", "ACTIVE", "--python with torch, transformers and peft"),
    "continuous": ("transformers_peft.py", "PASSIVE", "--python with torch, transformers and peft"),
    "tuft": ("tuft_hf.py", "ACTIVE", "--tuft, the program of a `pip install tuft`"),
    "llama.cpp": ("llamacpp.py", "ACTIVE", "--llama-python with llama-cpp-python, gguf and numpy"),
}
TITLES = {"transformers": "Transformers + PEFT", "continuous": "Transformers, continuous batching", "tuft": "TuFT (HF)",
          "llama.cpp": "llama.cpp"}


def interpreter(options, name):
    if name == "tuft":
        return options.tuft and pathlib.Path(options.tuft).absolute().parent / "python"
    return options.llama_python if name == "llama.cpp" else options.python


def start(options, name):
    """Raises measure.Skip where it is not there."""
    file, wait, needs = NEEDS[name]
    python = interpreter(options, name)
    if not python:
        raise measure.Skip(f"{TITLES[name]}: give {needs}")
    environment = dict(OMP_NUM_THREADS=str(options.threads), OMP_WAIT_POLICY=wait)
    check = subprocess.run([python, PEERS / file, "--check"], capture_output=True, text=True,
                           env=dict(os.environ, **environment))
    if check.returncode != 0:
        raise measure.Skip(f"{TITLES[name]}: {python}: {check.stderr.strip().splitlines()[-1]}")
    return measure.Child([python, PEERS / file, "--model", bench_model.make(options.scratch / "mini"), "--threads",
                          options.threads], rests=True, **environment)


@contextlib.contextmanager
def started(options, *names):
    """Gives the peers that are there, by name, and notes for the result: versions of these, reasons of the others."""
    with contextlib.ExitStack() as stack:
        children, notes = {}, []
        for name in names:
            try:
                children[name] = stack.enter_context(start(options, name))
            except measure.Skip as reason:
                notes.append(f"Not compared with {reason}.")
                continue
            versions = ", ".join(f"{key} {value}" for key, value in children[name].ask(op="hello")["versions"].items())
            notes.append(f"{TITLES[name]}: {versions}; {options.threads} threads, OMP_WAIT_POLICY={NEEDS[name][1]}.")
        yield children, notes


def tokens_per_second(sample):
    return sample["tokens"] / sample["seconds"]


def best_of(child, requests):
    """The name of the fastest of some requests that do the same work, and the rates of all. Of several the first is
    asked twice: once to warm up."""
    if len(requests) > 1:
        child.ask(**next(iter(requests.values())))
    seen = {name: tokens_per_second(child.ask(**request)) for name, request in requests.items()}
    return max(seen, key=seen.get), seen


def mebibytes(samples):
    return f"{max(sample['peak_bytes'] for sample in samples) / 2**20:,.0f}" if samples else "-"
