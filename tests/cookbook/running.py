"""Runs recipes of the Tinker cookbook, unmodified, against a server of their own. As a program: makes the base model."""
import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys

import data_sets
import environment
import tuft_server

FOLDER = pathlib.Path(__file__).resolve().parent
CACHE = environment.ROOT / "build/cookbook"
BASE_MODEL_SECONDS = 1800
RESULTS = []  # lines that are printed at the end


def made_model(name, *options):
    """Returns the directory of a model that base_model.py makes, once for each state of its sources."""
    sources = b"".join((FOLDER / file).read_bytes() for file in ("base_model.py", "conversations.py", "requirements.txt"))
    directory = CACHE / f"{name}-{hashlib.sha256(sources).hexdigest()[:16]}"
    if not directory.exists():
        unfinished = directory.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        subprocess.run([environment.PYTHON, FOLDER / "base_model.py", unfinished, *options], check=True,
                       timeout=BASE_MODEL_SECONDS, stdout=sys.stderr, env={**os.environ, "PYTHONPATH": ""})
        unfinished.rename(directory)
    return directory


def base_model():
    return made_model("base")


def untrained_model(width, layers):
    return made_model(f"untrained-{width}-{layers}", "--untrained", str(width), str(layers), str(base_model()))


def make_workplace(folder, models):
    """Fills the working directory of a recipe: the data sets, and a tokenizer under each model's name."""
    folder.mkdir(parents=True)
    data_sets.write_all(folder)
    for model in models:
        (folder / model).parent.mkdir(parents=True, exist_ok=True)
        (folder / model).symlink_to(base_model())
    return folder


def configuration(models, directory=None, **changes):
    """Serves one model under each of the names. The cookbook knows models by their names only."""
    entries = [{"model_name": name, "model_path": str(directory or base_model()), "max_model_len": 32768, "max_lora_rank": 128,
                "kv_cache_bytes": 256 << 20, "adapter_memory_bytes": 256 << 20} for name in models]
    return {"supported_models": entries, "authorized_users": {tuft_server.ALICE: "alice"}, **changes}


@dataclasses.dataclass
class Outcome:
    status: int
    output: str
    rows: list   # of metrics.jsonl; of all stages, if the recipe has several
    folder: pathlib.Path

    def series(self, key):
        return [row[key] for row in self.rows if key in row]

    def checkpoints(self):
        return [json.loads(line) for path in sorted(self.folder.rglob("checkpoints.jsonl"))
                for line in path.read_text().splitlines()]


def metrics(folder):
    with_times = sorted((path.stat().st_mtime, path) for path in folder.rglob("metrics.jsonl"))
    return [json.loads(line) for _, path in with_times for line in path.read_text().splitlines() if line.endswith("}")]


def command(module, flags):
    return [environment.PYTHON, "-W", "ignore", "-m", f"tinker_cookbook.recipes.{module}", *flags]


def surroundings(server, runs):
    """The environment variables of a recipe. Nothing but the server can be reached."""
    return {**tuft_server.clean_environment(), "TINKER_BASE_URL": server.url, "TINKER_API_KEY": tuft_server.ALICE,
            "TINKER_COOKBOOK_RUNS_DIR": str(runs), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
            "HF_HOME": str(runs.with_name("hf")), "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1",
            "PYTHONPATH": ""}


@contextlib.contextmanager
def started(server, place, module, flags, runs="runs", stdin=""):
    """Starts a recipe, and kills it at the end if it still runs. Its output goes to a file of the working directory."""
    (place / f"{runs}.stdin").write_text(stdin)
    with open(place / f"{runs}.log", "w") as log, open(place / f"{runs}.stdin") as lines:
        process = subprocess.Popen(command(module, flags), cwd=place, env=surroundings(server, place / runs), stdout=log,
                                   stderr=subprocess.STDOUT, stdin=lines)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def outcome(place, process, runs="runs"):
    return Outcome(process.returncode, (place / f"{runs}.log").read_text(), metrics(place / runs), place / runs)


def run(server, place, module, flags, seconds, runs="runs", stdin=""):
    with started(server, place, module, flags, runs, stdin) as process:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=seconds)
    found = outcome(place, process, runs)
    assert found.status == 0, f"{module} ended with {found.status}:\n{found.output[-4000:]}\n{server.log[-2000:]}"
    return found


if __name__ == "__main__":
    base_model()
