#!/usr/bin/env python3
"""The whole thing in one go, for `./dev demo`: makes a small base model, serves it, runs examples/demo.py against the
server, and keeps serving until Ctrl-C (or ends at once with --once)."""
import argparse
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
KEY = "tml-demo"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def write_config(home, model, otlp_endpoint):
    config = home / "demo.yaml"
    telemetry = f"telemetry:\n  enabled: true\n  otlp_endpoint: {otlp_endpoint}\n" if otlp_endpoint else ""
    config.write_text(
        f"checkpoint_dir: {home / 'checkpoints'}\n"
        f"supported_models:\n"
        f"  - model_name: tuft-demo\n    model_path: {model}\n    max_model_len: 512\n    max_lora_rank: 64\n"
        f"authorized_users:\n  {KEY}: demo\n" + telemetry)
    return config


def wait_until_serving(url, server):
    for _ in range(600):
        if server.poll() is not None:
            sys.exit(f"the server ended with code {server.returncode}; its log is above")
        try:
            urllib.request.urlopen(url + "/api/v1/healthz", timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit("the server did not answer within 30 s")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="where tuft and tuft-worker are")
    parser.add_argument("--once", action="store_true", help="end after the demo")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--home", type=pathlib.Path, default=ROOT / "build" / "demo")
    parser.add_argument("--otlp-endpoint", default=os.environ.get("TUFT_OTLP_ENDPOINT"),
                        help="an OpenTelemetry collector, e.g. http://localhost:4317")
    options = parser.parse_args()

    options.home.mkdir(parents=True, exist_ok=True)
    model = options.home / "model"
    if not (model / "config.json").exists():
        subprocess.run([options.bin / "tuft", "init-model", model, "--family", "qwen3", "--size", "small"], check=True)
    port = options.port or free_port()
    url = f"http://127.0.0.1:{port}"
    log = (options.home / "server.log").open("w")
    environment = dict(os.environ, TUFT_HOME=str(options.home), NO_PROXY="127.0.0.1,localhost")
    server = subprocess.Popen(
        [options.bin / "tuft", "launch", "--config", write_config(options.home, model, options.otlp_endpoint),
         "--port", str(port)], env=environment, stderr=log, stdout=log)
    try:
        try:
            wait_until_serving(url, server)
        except SystemExit:
            sys.stderr.write((options.home / "server.log").read_text())
            raise
        environment.update(TINKER_BASE_URL=url, TINKER_API_KEY=KEY, HF_HUB_OFFLINE="1", TINKER_TELEMETRY="0")
        result = subprocess.run([sys.executable, ROOT / "examples" / "demo.py"], env=environment).returncode
        if result != 0:
            return result
        print(f"\n  server    {url}   (export TINKER_BASE_URL={url} TINKER_API_KEY={KEY})")
        print(f"  log       {options.home / 'server.log'}")
        print(f"  adapters  {options.home / 'checkpoints'}   (PEFT layout)")
        if options.otlp_endpoint:
            print(f"  traces    sent to {options.otlp_endpoint}")
        else:
            print("  traces    TUFT_OTLP_ENDPOINT=http://localhost:4317 ./dev demo   sends them to your collector")
        if options.once:
            return 0
        print("\nserving until Ctrl-C", flush=True)
        signal.pause()
        return 0
    except KeyboardInterrupt:
        return 0
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
