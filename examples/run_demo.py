#!/usr/bin/env python3
"""Runs `./dev demo`: makes a small base model, serves it, fine-tunes an adapter, and keeps serving until Ctrl-C."""
import argparse
import os
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
API_KEY = "tml-demo"
READY_SECONDS = 120


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin", help="directory of tuft and tuft-worker")
    parser.add_argument("--home", type=pathlib.Path, default=ROOT / ".cache/demo", help="directory for the model, checkpoints and log")
    parser.add_argument("--port", type=int, default=int(os.environ.get("TUFT_PORT", "10610")))
    parser.add_argument("--once", action="store_true", help="exit after the fine-tuning, with status 1 if it did not learn")
    return parser.parse_args()


def make_model(tuft, directory):
    if (directory / "config.json").exists():
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    print("Making a small randomly initialised base model")
    subprocess.run([tuft, "init-model", directory, "--family", "qwen3", "--size", "small", "--seed", "1"], check=True)


def write_config(path, model):
    # Telemetry is exported only if the environment names a collector.
    telemetry = any(os.environ.get(name) for name in ("TUFT_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT", "TUFT_OTEL_DEBUG"))
    path.write_text(f"""supported_models:
  - model_name: demo
    model_path: {model}
    max_model_len: 512
    max_lora_rank: 64
authorized_users:
  {API_KEY}: demo
console:
  operators: [demo]
telemetry:
  enabled: {str(telemetry).lower()}
  service_name: tuft-demo
""")
    return telemetry


class Server:
    def __init__(self, tuft, home, config, port):
        self.log_path, self.address = home / "server.log", home / "tuft_current_server"
        self.address.unlink(missing_ok=True)
        environment = {**os.environ, "TUFT_HOME": str(home)}
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen([tuft, "launch", "--config", config, "--port", str(port)], env=environment,
                                            stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    def wait_ready(self):
        end = time.monotonic() + READY_SECONDS
        while not self.address.exists():
            if self.process.poll() is not None:
                sys.exit(f"The server did not start:\n{self.log_path.read_text()}")
            if time.monotonic() > end:
                self.stop()
                sys.exit(f"The server was not ready within {READY_SECONDS} s; see {self.log_path}")
            time.sleep(0.05)
        return self.address.read_text().strip()

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(timeout=10)


def look_next(options, url, model, telemetry):
    home = relative(options.home)
    print(f"""
Where to look next
  the console       {url}/console  (key {API_KEY}): the run that was just trained is under Runs, and each of its requests
                    under Traces says where its time went
  the server        {url}  (key {API_KEY}, model demo; curl {url}/api/v1/healthz)
  its log           {home}/server.log
  checkpoints       {home}/checkpoints  (PEFT layout)
  your own loop     examples/sft.py
                    TINKER_BASE_URL={url} TINKER_API_KEY={API_KEY} .venv/bin/python examples/sft.py demo
  real models       docs/configuration.md""")
    if telemetry:
        print("  traces, metrics   at the collector that the environment names, service tuft-demo")
    else:
        print("  your collector    TUFT_OTLP_ENDPOINT=http://localhost:4317 ./dev demo sends traces, metrics and logs there, too")


def relative(path):
    return os.path.relpath(path, ROOT) if path.is_relative_to(ROOT) else path


def main():
    options = arguments()
    options.home = options.home.resolve()
    options.home.mkdir(parents=True, exist_ok=True)
    tuft, model, config = options.bin / "tuft", options.home / "model", options.home / "tuft.yaml"
    make_model(tuft, model)
    telemetry = write_config(config, model)
    # --once runs in CI, where another server may use the default port.
    server = Server(tuft, options.home, config, 0 if options.once else options.port)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        url = server.wait_ready()
        print(f"tuft serves the model on {url}")
        environment = {**os.environ, "TINKER_API_KEY": API_KEY, "HF_HUB_OFFLINE": "1", "NO_PROXY": "127.0.0.1,localhost"}
        command = [sys.executable, ROOT / "examples/demo.py", "--url", url, "--model", "demo", "--check"]
        status = subprocess.run(command, env=environment).returncode
        look_next(options, url, model, telemetry)
        if not options.once and status == 0:
            print("\nThe server keeps serving; Ctrl-C ends it.", flush=True)
            server.process.wait()
        return status
    except KeyboardInterrupt:
        print("\nStopping")
        return 0
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main())
