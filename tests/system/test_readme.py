"""Runs the configuration, the program and the request of the README, as a reader copies them."""
import json
import pathlib
import re
import subprocess
import sys

import pytest

import sdk_exit
import tuft_server

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
MODEL = "Qwen/Qwen3-0.6B"
ADDRESS, PATH = "http://localhost:10610", "/models/Qwen3-0.6B"


def block(language, begin):
    """Returns the fenced block whose text begins so."""
    blocks = re.findall(r"(?ms)^```(\w*)\n(.*?)^```$", README)
    found = [text for one, text in blocks if one == language and text.startswith(begin)]
    assert len(found) == 1, found
    return found[0]


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """The folder of a reader, in which a folder has the name of the model, so that its tokenizer is found there."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "Qwen").mkdir()
    tuft_server.init_model(folder / MODEL, "--family", "qwen3", "--size", "tiny", "--seed", "7")
    description = folder / MODEL / "config.json"
    description.write_text(json.dumps({**json.loads(description.read_text()), "max_position_embeddings": 4096}))
    return folder


@pytest.fixture(scope="module")
def server(reader):
    config = block("yaml", "# tuft.yaml")
    assert PATH in config
    config = config.replace(PATH, str(reader / MODEL)).replace("http://localhost:4317", "http://127.0.0.1:9")
    with tuft_server.TuftServer(reader / "home", config) as running:
        yield running


@pytest.fixture(scope="module")
def printed(server, reader):
    program = block("python", "import tinker")
    assert ADDRESS in program
    (reader / "program.py").write_text(program.replace(ADDRESS, server.url))
    run = subprocess.run([sys.executable, "-W", "ignore", sdk_exit.__file__, "program.py"], cwd=reader, capture_output=True,
                         text=True, timeout=200, env={**tuft_server.clean_environment(), "HF_HUB_OFFLINE": "1"})
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def test_the_program_learns_and_samples(printed):
    losses = [float(line.split()[1]) for line in printed[:10]]
    assert losses[-1] < 0.9 * losses[0], losses
    assert printed[10].startswith("tinker://") and "/sampler_weights/step-10 " in printed[10], printed


def test_the_request_is_answered(server, printed):
    path = printed[10].split()[0]
    command = block("", "curl ")
    assert "tinker://<run>/sampler_weights/step-10" in command and ADDRESS in command
    command = command.replace("tinker://<run>/sampler_weights/step-10", path).replace(ADDRESS, server.url)
    run = subprocess.run(["bash", "-c", command.replace("curl ", "curl --silent --show-error --fail ", 1)],
                         capture_output=True, text=True, timeout=60, env=tuft_server.clean_environment())
    assert run.returncode == 0, run.stderr
    events = [line[len("data: "):] for line in run.stdout.splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]" and json.loads(events[0])["object"] == "chat.completion.chunk", events[:2]


def test_the_start_command_names_the_file_of_the_configuration():
    assert block("", "build/release/bin/tuft launch").strip() == "build/release/bin/tuft launch --config tuft.yaml"
    assert block("yaml", "# tuft.yaml")
