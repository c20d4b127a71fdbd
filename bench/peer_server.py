"""Servers of others that speak the same protocol, started like server.Server."""
import os
import shutil
import subprocess

import measure
import server


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
        """Of all its processes."""
        return sum(server.resident_megabytes(pid) for pid in self.processes())


class FastApi(Peer):
    """peers/fastapi_server.py in --python, with uvloop and httptools."""

    def __init__(self, options, workers=1):
        if not options.python:
            raise measure.Skip("no peer: --python wants an interpreter with fastapi, uvicorn, uvloop, httptools, tinker")
        if not python_has(options.python, "fastapi", "uvicorn", "uvloop", "httptools", "tinker.proto", "zstandard"):
            raise measure.Skip(f"{options.python} lacks fastapi, uvicorn, uvloop, httptools, tinker or zstandard")
        port = server.free_port()
        self.url = f"http://127.0.0.1:{port}"
        super().__init__(options, f"fastapi-{workers}",
                         [options.python, measure.ROOT / "bench" / "peers" / "fastapi_server.py", port, workers],
                         PYTHONPATH=str(measure.ROOT / "bench" / "peers"))


class PythonTuft(Peer):
    """TuFT itself with its dummy back ends."""

    def __init__(self, options):
        if not options.tuft:
            raise measure.Skip("TuFT itself: --tuft wants the path of its program (pip install tuft)")
        port = server.free_port()
        self.url = f"http://127.0.0.1:{port}"
        config = options.scratch / "python-tuft.yaml"
        config.write_text(f"checkpoint_dir: {options.scratch / 'python-tuft-checkpoints'}\nsupported_models:\n"
                          f"  - model_name: bench\n    model_path: {server.base_model(options)}\n    max_model_len: 2048\n"
                          f"authorized_users:\n  {server.KEY}: bench\n")
        super().__init__(options, "python-tuft", [options.tuft, "launch", "--config", config, "--port", port,
                                                  "--log-level", "warning"],
                         TUFT_CPU_TEST="1", TUFT_HOME=str(options.scratch / "python-tuft-home"))


def start_all(notes, *makers):
    """Those of the servers that can be started here, by name; what cannot is noted."""
    running = {}
    for name, make in makers:
        try:
            running[name] = make()
        except measure.Skip as reason:
            notes.append(f"{name} skipped: {reason}")
        except RuntimeError as error:
            notes.append(f"{name} left out: {str(error)[-400:]}")
    return running
