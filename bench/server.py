"""A real `tuft launch` for a benchmark, its CPU time, and wrk against it."""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time
import urllib.request

import measure

KEY = "tml-bench-key"
START_SECONDS = 180  # a Python server with vLLM needs a minute to import it
WRK_REPORT = """
done = function(summary, latency)
  local e = summary.errors
  io.write(string.format('\\nJSON {"requests":%d,"seconds":%f,"p50_us":%f,"p99_us":%f,"errors":%d}\\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50), latency:percentile(99),
    e.connect + e.read + e.write + e.timeout + e.status))
end
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def base_model(options, size="small"):
    """Makes a model with `tuft init-model`, because the server requires a whole model directory."""
    directory = options.scratch / ("served" if size == "small" else f"served-{size}")
    if not (directory / "config.json").exists():
        command = [options.programs / "tuft", "init-model", directory, "--family", "qwen3", "--size", size]
        made = subprocess.run(command, capture_output=True, text=True)
        if made.returncode != 0:
            raise RuntimeError(f"tuft init-model: {made.stderr.strip()}")
    return directory


def resident_megabytes(pid):
    try:
        return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        return 0.0


class Server:
    """A server. With otlp_endpoint, telemetry is on and exports everything to it; otherwise telemetry is off.
    `settings` is more configuration, as YAML, and `model` are more keys of the base model; `users` are more users, by
    their keys; with `metrics`, /metrics is served without telemetry, too."""

    def __init__(self, options, name, otlp_endpoint=None, settings="", model_size="small", users=None,
                 metrics=False, model=None):
        if not (options.programs / "tuft").exists():
            raise measure.Skip("tuft is not built")
        self.home = options.scratch / f"server-{name}"
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True)
        self.url = f"http://127.0.0.1:{free_port()}"
        telemetry = ("telemetry:\n  enabled: true\n  otlp_endpoint: " + otlp_endpoint if otlp_endpoint
                     else f"telemetry:\n  enabled: false\n  metrics_endpoint: {str(metrics).lower()}") + "\n"
        config = self.home / "config.yaml"
        config.write_text(f"checkpoint_dir: {self.home / 'checkpoints'}\nsupported_models:\n"
                          f"  - model_name: bench\n    model_path: {base_model(options, model_size)}\n    max_model_len: 2048\n"
                          + "".join(f"    {key}: {value}\n" for key, value in (model or {}).items())
                          + f"authorized_users:\n  {KEY}: bench\n"
                          + "".join(f"  {key}: {user}\n" for key, user in (users or {}).items()) + telemetry + settings)
        self.command = [options.programs / "tuft", "launch", "--config", config, "--port", self.url.rpartition(":")[2]]
        self.environment = dict(os.environ, TUFT_HOME=str(self.home))
        self.launch()

    def launch(self):
        """Returns the seconds until it serves."""
        begin = time.monotonic()
        self.log = (self.home / "server.log").open("w")
        self.process = subprocess.Popen([str(part) for part in self.command], env=self.environment, stdout=self.log,
                                        stderr=self.log)
        self.wait_until_serving()
        return time.monotonic() - begin

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.log.close()

    def wait_until_serving(self):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                self.get("/api/v1/healthz")
                return
            except OSError:
                time.sleep(0.005)
        self.close()
        raise RuntimeError("the server did not start:\n" + (self.home / "server.log").read_text()[-3000:])

    def get(self, path):
        request = urllib.request.Request(self.url + path, headers={"X-API-Key": KEY})
        with urllib.request.urlopen(request, timeout=10) as reply:
            return json.load(reply)

    def get_text(self, path):
        with urllib.request.urlopen(self.url + path, timeout=10) as reply:
            return reply.read().decode()

    def post(self, path, body):
        request = urllib.request.Request(self.url + path, data=json.dumps(body).encode(), headers={
            "X-API-Key": KEY, "Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as reply:
            return json.load(reply)

    def create_session(self):
        return self.post("/api/v1/create_session", {"tags": [], "user_metadata": None, "sdk_version": "0.25.0",
                                                    "type": "create_session"})["session_id"]

    def create_model(self, session, number, rank=8):
        """Creates a model that is ready for its first operation, with seq_id 1."""
        submitted = self.post("/api/v1/create_model", {
            "session_id": session, "model_seq_id": number, "base_model": "bench", "lora_config": {"rank": rank},
            "type": "create_model"})
        while True:
            answer = self.post("/api/v1/retrieve_future", {"request_id": submitted["request_id"]})
            if "model_id" in answer:
                return answer["model_id"]
            if answer.get("type") != "try_again":
                raise RuntimeError(f"create_model: {answer}")

    def processes(self):
        """Returns the server and its workers."""
        parents = {}
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
            except OSError:
                continue
        found, todo = [], [self.process.pid]
        while todo:
            found.append(todo.pop())
            todo += parents.get(found[-1], [])
        return found

    def cpu_seconds(self):
        ticks = 0
        for pid in self.processes():
            try:
                fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
            except OSError:
                continue
        return ticks / os.sysconf("SC_CLK_TCK")

    def resident_megabytes(self):
        """Returns the memory of the server itself, without its workers."""
        return resident_megabytes(self.process.pid)

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def write_wrk_script(path, method="GET", body=None, delay_ms=0):
    """`delay_ms`: the pause of every connection before each request, which limits the load."""
    lines = [f'wrk.method = "{method}"', f'wrk.headers["X-API-Key"] = "{KEY}"']
    if body is not None:
        lines += ['wrk.headers["Content-Type"] = "application/json"', f"wrk.body = [[{json.dumps(body)}]]"]
    if delay_ms:
        lines.append(f"delay = function() return {delay_ms} end")
    path.write_text("\n".join(lines) + "\n" + WRK_REPORT)
    return path


def wrk(server, path, script, seconds, connections=64):
    if shutil.which("wrk") is None:
        raise measure.Skip("wrk is not installed (Debian package wrk; ./dev bench installs it)")
    before = server.cpu_seconds()
    run = subprocess.run(["wrk", "-t", "1", "-c", str(connections), "-d", f"{seconds}s", "--latency", "-s", str(script),
                          server.url + path], capture_output=True, text=True)
    lines = [line for line in run.stdout.splitlines() if line.startswith("JSON ")]
    if not lines:
        raise RuntimeError(f"wrk: {run.stdout[-500:]} {run.stderr[-500:]}")
    sample = json.loads(lines[0][5:])
    if sample["errors"]:
        raise RuntimeError(f"wrk: {sample['errors']} of {sample['requests']} requests to {path} failed")
    sample["cpu_seconds"] = server.cpu_seconds() - before
    return sample
