#!/usr/bin/env python3
"""Schemathesis makes requests from a running server's /openapi.json, valid and invalid, alone and in sequences. No answer
may be a 5xx, and the server must be alive at the end. Installs Schemathesis in .venv-lab (tests/requirements-lab.txt)."""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "support"))
import lab_results
from tuft_server import ALICE, TuftServer, configuration, init_model

PROTOBUF_ONLY = "/api/v1/forward_backward"  # test_amplification.py attacks each field of its message
PLACE = TESTS.parent / ".venv-lab"
REQUIREMENTS = TESTS / "requirements-lab.txt"


def schemathesis():
    """Returns the path of the program, after installing it where it is missing or another version."""
    stamp = PLACE / ".requirements"
    if not stamp.exists() or stamp.read_text() != REQUIREMENTS.read_text():
        subprocess.run([sys.executable, "-m", "venv", PLACE], check=True)
        subprocess.run([PLACE / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r", REQUIREMENTS], check=True)
        stamp.write_text(REQUIREMENTS.read_text())
    return PLACE / "bin/schemathesis"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=50, help="for each operation")
    options = parser.parse_args()
    program = schemathesis()
    with tempfile.TemporaryDirectory() as directory:
        home = pathlib.Path(directory)
        model = init_model(home / "tiny", "--family", "qwen3", "--size", "tiny", "--seed", "7")
        with TuftServer(home / "home", configuration(model), arguments=["--log-level", "error"]) as server:
            run = subprocess.run([program, "run", f"{server.url}/openapi.json", "--checks", "not_a_server_error",
                                  "--max-examples", str(options.examples), "--header", f"X-API-Key: {ALICE}",
                                  "--header", f"Authorization: Bearer {ALICE}", "--request-timeout", "60",
                                  "--exclude-path", PROTOBUF_ONLY, "--continue-on-failure", "--no-color"], cwd=home, capture_output=True, text=True)
            alive = server.process.poll() is None and server.healthy()
    print(run.stdout[-6000:], run.stderr[-2000:])
    counts = re.findall(r"(\d+) generated", run.stdout)
    passed = run.returncode == 0 and alive
    lab_results.note("api", "Schemathesis on /openapi.json", counts[-1] if counts else "unknown",
                     "no 5xx" if passed else "FAILED" + ("" if alive else ", the server died"))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
