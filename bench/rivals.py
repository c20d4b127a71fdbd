"""The peers of the engine: programs in bench/peers that speak the JSON protocol of tuft_engine_runner."""
import contextlib
import os
import pathlib
import subprocess

import bench_model
import measure
from peers import environments

PEERS = measure.ROOT / "bench" / "peers"
# An OpenMP thread that spins while it waits is best on idle cores if one thread's pool does all the work (for
# Transformers, see the sweep of 2026-11-21). Continuous batching works on its own thread, next to which another pool
# would spin.
NEEDS = {
    "transformers": ("transformers_peft.py", "ACTIVE", ("--python with torch, transformers and peft", "transformers")),
    "continuous": ("transformers_peft.py", "PASSIVE", ("--python with torch, transformers and peft", "transformers")),
    "tuft": ("tuft_hf.py", "ACTIVE", ("--tuft, the program of a `pip install tuft`", "tuft")),
    "llama.cpp": ("llamacpp.py", "ACTIVE", ("--llama-python with llama-cpp-python, gguf and numpy", "llamacpp")),
}
TITLES = {"transformers": "Transformers + PEFT", "continuous": "Transformers, continuous batching", "tuft": "TuFT (HF)",
          "llama.cpp": "llama.cpp"}


def interpreter(options, name):
    if name == "tuft":
        program = environments.tuft(options)
        return program and pathlib.Path(program).absolute().parent / "python"
    return environments.llama_python(options) if name == "llama.cpp" else environments.python(options, "transformers")


class Peer:
    """A child process. If it fails, the failure is noted, it leaves `children`, and the suite continues without it."""

    def __init__(self, child, name, children, notes):
        self.child, self.name, self.children, self.notes = child, name, children, notes

    def ask(self, **request):
        try:
            with measure.peer_may_fail(TITLES.get(self.name, self.name), self.notes):
                return self.child.ask(**request)
        except measure.PeerFailed:
            self.children.pop(self.name, None)
            raise


def start(options, name, arguments):
    """Raises measure.Skip if the peer is missing."""
    file, wait, needs = NEEDS[name]
    python = interpreter(options, name)
    if not python:
        raise measure.Skip(f"{TITLES[name]}: {environments.why_missing(options, needs[1])}, or give {needs[0]}")
    environment = dict(OMP_NUM_THREADS=str(options.threads), OMP_WAIT_POLICY=wait)
    try:
        check = subprocess.run([python, PEERS / file, "--check"], capture_output=True, text=True,
                               env=dict(os.environ, **environment))
    except OSError as error:
        raise measure.Skip(f"{TITLES[name]}: {error}") from error
    if check.returncode != 0:
        said = check.stderr.strip().splitlines() or [f"exit status {check.returncode}"]
        raise measure.Skip(f"{TITLES[name]}: {python}: {said[-1]}")
    return measure.Child([python, PEERS / file, *arguments, "--threads", options.threads], rests=True, **environment)


@contextlib.contextmanager
def started(options, *names, arguments=None):
    """Returns the started peers by name, and notes for the result: their versions, and reasons for the others.
    `arguments` names their model and what else they need; default: the model "mini"."""
    arguments = arguments or ["--model", bench_model.make(options.scratch / "mini")]
    with contextlib.ExitStack() as stack:
        children, notes = {}, []
        for name in names:
            try:
                children[name] = Peer(stack.enter_context(start(options, name, arguments)), name, children, notes)
                hello = children[name].ask(op="hello")
            except measure.Skip as reason:
                notes.append(f"Not compared with {reason}.")
                measure.progress.line(notes[-1])
                continue
            except measure.PeerFailed:
                continue
            versions = ", ".join(f"{key} {value}" for key, value in hello["versions"].items())
            notes.append(f"{TITLES[name]}: {versions}; {options.threads} threads, OMP_WAIT_POLICY={NEEDS[name][1]}.")
        yield children, notes


def tokens_per_second(sample):
    return sample["tokens"] / sample["seconds"]


def best_of(child, requests):
    """Returns the name of the fastest of several requests that do the same work, and the rates of all. The first of
    several runs twice, once to warm up."""
    if len(requests) > 1:
        child.ask(**next(iter(requests.values())))
    seen = {name: tokens_per_second(child.ask(**request)) for name, request in requests.items()}
    return max(seen, key=seen.get), seen


def mebibytes(samples):
    return f"{max(sample['peak_bytes'] for sample in samples) / 2**20:,.0f}" if samples else "-"
