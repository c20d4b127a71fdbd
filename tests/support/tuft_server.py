"""Runs the real `tuft launch` in its own directory, for tests and tools."""
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request

BIN = pathlib.Path(os.environ.get("TUFT_BIN_DIR", pathlib.Path(__file__).resolve().parents[2] / "build/release/bin"))
ALICE, BOB = "tml-alice", "tml-bob"
USERS = {ALICE: "alice", "tml-alice-second-key": "alice", BOB: "bob"}
MODEL = "tiny"
# For example "cuda:0": servers of these tests compute with the torch back end on that device. The programs in
# TUFT_BIN_DIR must be of a build with libtorch.
DEVICE = os.environ.get("TUFT_TEST_DEVICE")
START_SECONDS = 120


def wait_until(condition, seconds, what):
    """Polls `condition` until its result is true, and returns the result."""
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.02)


def tuft(*arguments, env=None, timeout=60):
    """Runs `tuft ARGUMENTS` and waits for its end."""
    return subprocess.run([BIN / "tuft", *map(str, arguments)], capture_output=True, text=True, timeout=timeout,
                          env={**clean_environment(), **(env or {})})


def clean_environment():
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TUFT_", "OTEL_"))}
    return {**kept, "NO_PROXY": "127.0.0.1,localhost"}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def init_model(directory, *arguments):
    run = tuft("init-model", directory, *arguments)
    assert run.returncode == 0, run.stderr
    return pathlib.Path(directory)


def as_yaml(value):
    return json.dumps(value)  # JSON is YAML


def configuration(model_path, **changes):
    """Returns a valid configuration. Keys with the value None are left out."""
    model = {"model_name": MODEL, "model_path": str(model_path), "max_model_len": 256, "max_lora_rank": 32}
    if DEVICE:
        model.update(backend="torch", device=DEVICE)
    model.update(changes.pop("model", {}))
    config = {"supported_models": [model], "authorized_users": USERS, **changes}
    return {key: value for key, value in config.items() if value is not None}


class LoggedProcess:
    """A process whose output a thread reads, so that the pipe never fills."""

    def __init__(self):
        self.process, self.lines, self.reads = None, [], True

    def spawn_logged(self, command, env, **options):
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        errors="replace", **options)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if not self.reads:
                return self.process.stdout.close()

    def stop_reading(self):
        """Breaks the pipe after the next line."""
        self.reads = False

    @property
    def log(self):
        return "\n".join(self.lines)


class TuftServer(LoggedProcess):
    """A server with start() and stop()."""

    def __init__(self, home, config, env=None, arguments=()):
        super().__init__()
        self.home = pathlib.Path(home)
        self.home.mkdir(parents=True, exist_ok=True)
        self.config_path = self.home / "tuft.yaml"
        self.config_path.write_text(config if isinstance(config, str) else as_yaml(config))
        self.env = {**clean_environment(), "TUFT_HOME": str(self.home), **(env or {})}
        self.arguments = ["--host", "127.0.0.1", "--port", "0", *arguments]
        self.url = None

    def spawn(self):
        # A group for killpg, but no session: Linux shares the processors between sessions (autogroup) before it shares them
        # between threads, and a test's client beside the server would get half of the machine.
        self.spawn_logged([BIN / "tuft", "launch", "-c", self.config_path, *self.arguments], self.env, process_group=0)
        return self

    def start(self):
        self.spawn()
        address = self.home / "tuft_current_server"

        def running():
            assert self.process.poll() is None, f"tuft ended with {self.process.returncode}:\n{self.log}"
            return True

        wait_until(lambda: running() and address.exists() and address.read_text().startswith("http"), START_SECONDS,
                   "the server is ready")
        self.url = address.read_text().strip()
        wait_until(lambda: running() and self.healthy(), START_SECONDS, "healthz answers")
        return self

    def healthy(self):
        """Returns True if it leads: a server that stands by answers 503."""
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(self.url + "/api/v1/healthz?role=leader", timeout=5) as answer:
                return answer.status == 200
        return False

    def error_lines(self):
        return [line for line in self.lines if " error " in line.lower() or '"level":"error"' in line]

    def metric(self, name, **labels):
        """Returns the sum of the series of `name` on GET /metrics whose labels have these values."""
        request = urllib.request.Request(self.url + "/metrics", headers={"X-API-Key": ALICE})
        with urllib.request.urlopen(request, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        total = 0.0
        for line in lines:
            found = re.match(rf"{name}(?:{{(.*)}})? (\S+)$", line)
            if found and all(f'{key}="{value}"' in (found.group(1) or "") for key, value in labels.items()):
                total += float(found.group(2))
        return total

    def wait_until_polls_wait(self, count):
        """Waits until so many POST requests are open. For a client that sends nothing else, these are its polls."""
        wait_until(lambda: self.metric("http_server_active_requests", http_request_method="POST") >= count, 20,
                   f"{count} polls are open")

    def wait_until_running(self, operation_type):
        """Waits until a worker runs an operation of this type."""
        wait_until(lambda: self.metric("tuft_futures_running", operation_type=operation_type) > 0, 20,
                   f"a worker runs {operation_type}")

    def worker_pids(self):
        pid = self.process.pid
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
        found = set()
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found.update(int(child) for child in (task / "children").read_text().split())
        return sorted(child for child in found if is_worker(child)) if children.exists() or found else []

    def wait_exit(self, seconds=30):
        status = self.process.wait(timeout=seconds)
        self.reader.join(timeout=5)
        return status

    def stop(self, seconds=10):
        """Sends SIGTERM. Returns the exit status and the time until the exit."""
        if self.process is None or self.process.poll() is not None:
            return (self.process.returncode if self.process else None), 0.0
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.wait_exit(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise AssertionError(f"tuft did not end within {seconds} s of SIGTERM:\n{self.log}") from None
        return status, time.monotonic() - began

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()


def is_worker(pid):
    with contextlib.suppress(OSError):
        return b"tuft-worker" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
    return False


def alive(pid):
    """Returns True for a running process, False for a zombie."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
