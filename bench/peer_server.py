"""Servers of other projects that speak the same protocol, started like server.Server."""
import os
import shutil
import subprocess

import measure
import server
from peers import environments


OURS = "tuft"  # the name of our server in every suite; all others are peers


def python_has(python, *modules):
    return subprocess.run([python, "-c", "import " + ", ".join(modules)], capture_output=True).returncode == 0


class Peer(server.Server):
    def __init__(self, options, name, command, **environment):
        self.home = options.scratch / f"server-{name}"
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True)
        self.command = [str(part) for part in command]
        self.environment = dict(os.environ, **environment)
        self.launch()

    def resident_megabytes(self):
        """Returns the memory of all its processes."""
        return sum(server.resident_megabytes(pid) for pid in self.processes())


class FastApi(Peer):
    """Runs peers/fastapi_server.py with the interpreter of --python, with uvloop and httptools."""

    def __init__(self, options, workers=1):
        python = environments.python(options, "fastapi")
        if not python:
            raise measure.Skip(f"{environments.why_missing(options, 'fastapi')}, or give --python with fastapi, uvicorn, "
                               "uvloop, httptools, tinker and zstandard")
        if not python_has(python, "fastapi", "uvicorn", "uvloop", "httptools", "tinker.proto", "zstandard"):
            raise measure.Skip(f"{python} lacks fastapi, uvicorn, uvloop, httptools, tinker or zstandard")
        port = server.free_port()
        self.url = f"http://127.0.0.1:{port}"
        super().__init__(options, f"fastapi-{workers}",
                         [python, measure.ROOT / "bench" / "peers" / "fastapi_server.py", port, workers],
                         PYTHONPATH=str(measure.ROOT / "bench" / "peers"))


class PythonTuft(Peer):
    """Runs TuFT with its dummy back ends."""

    def __init__(self, options):
        program = environments.tuft(options)
        if not program:
            raise measure.Skip(f"{environments.why_missing(options, 'tuft')}, or give --tuft, the program of a `pip install "
                               "tuft`")
        port = server.free_port()
        self.url = f"http://127.0.0.1:{port}"
        config = options.scratch / "python-tuft.yaml"
        config.write_text(f"checkpoint_dir: {options.scratch / 'python-tuft-checkpoints'}\nsupported_models:\n"
                          f"  - model_name: bench\n    model_path: {server.base_model(options)}\n    max_model_len: 2048\n"
                          f"authorized_users:\n  {server.KEY}: bench\n")
        super().__init__(options, "python-tuft", [program, "launch", "--config", config, "--port", port,
                                                  "--log-level", "warning"],
                         TUFT_CPU_TEST="1", TUFT_HOME=str(options.scratch / "python-tuft-home"))


def start_all(notes, *makers):
    """Starts the servers that can start here and returns them by name; notes the others."""
    running = {}
    for name, make in makers:
        try:
            if name == OURS:
                running[name] = make()
                continue
            with measure.peer_may_fail(name, notes):
                running[name] = make()
        except measure.Skip as reason:
            if name == OURS:
                raise
            notes.append(f"{name} skipped: {reason}")
            measure.progress.line(notes[-1])
        except measure.PeerFailed:
            pass
    return running


def guarded(notes, name, source):
    """Returns `source`. If it is a peer, its errors become notes and PeerFailed."""
    def ask():
        with measure.peer_may_fail(name, notes):
            return source()

    return source if name == OURS else ask
