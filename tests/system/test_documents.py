"""Every block of code, configuration or commands in the README and docs/ is run: here, by another test, or as the text of a
source that a test runs. What is run nowhere says why."""
import os
import pathlib
import re
import subprocess

import pytest
import yaml
from tinker import types

from conftest import service_client
from examples_of_data import datum
from tuft_server import ALICE, MODEL, TuftServer, clean_environment, configuration, tuft, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ADDRESS = "http://127.0.0.1:10610"
ENVIRONMENT = {"TUFT_METRICS_TOKEN": "metrics-secret", "MY_PORT": "0"}


def blocks():
    """Yields (page, language, text) of each fenced block."""
    for path in PAGES:
        for indent, language, text in re.findall(r"(?ms)^( *)```(\w*)\n(.*?)^ *```$", path.read_text()):
            yield path.name, language, "".join(line.removeprefix(indent) for line in text.splitlines(True))


def block(page, begin):
    found = [text for name, _, text in blocks() if name == page and text.startswith(begin)]
    assert len(found) == 1, (page, begin, len(found))
    return found[0]


# Who runs a block, by its page and the beginning of its text. "here": a test of this file. A path: the function of another test,
# or for C++ the source that has the block's lines in this order. "-": nobody, and why.
E2E_COLLECTOR = "tests/e2e/test_collector.py test_the_collector_takes_the_configurations_that_the_documents_print"
POINTS = "examples/telemetry_guide.cc"
OWN = "tests/install/consumer/own_metrics.cc"
ROWS = "src/telemetry/request/tests/request_trace_test.cc"
CONTAINERS = "- starts containers"
WHO = {
    ("README.md", "   Tinker SDK"): "- a drawing",
    ("README.md", "./dev demo"): ".ci/run ./dev demo --once",
    ("README.md", "# tuft.yaml"): "tests/system/test_readme.py server",
    ("README.md", "build/release/bin/tuft launch"): "tests/system/test_readme.py test_the_start_command_names_the_file",
    ("README.md", "import tinker"): "tests/system/test_readme.py test_the_program_learns_and_samples",
    ("README.md", "curl "): "tests/system/test_readme.py test_the_request_is_answered",
    ("coming-from.md", "scrape_configs:"): "tests/docs/test_coming_from.py test_prometheus_accepts_the_example",
    ("configuration.md", "supported_models:"): "here",
    ("configuration.md", "$ tuft hash-key --new"): "here",
    ("configuration.md", "sha256:"): "- its hashes are shortened; tests/system/test_limits.py has whole ones",
    ("configuration.md", "file_format:"): "here",
    ("configuration.md", "port: ${"): "here",
    ("console.md", "console:"): "tests/system/test_observe.py operators",
    ("custom-losses.md", "def ppo("): "tests/system/test_custom_losses.py test_the_example_of_the_page",
    ("mcp.md", "{"): "- a file of an assistant; its address and header are those of the program below it",
    ("mcp.md", "import asyncio"): "tests/system/test_mcp.py import asyncio",
    ("observe.md", "console:"): "tests/system/test_observe.py operators",
    ("openai.md", "from openai import"): "here",
    ("operations.md", "install -m 755"): "- needs root and systemd",
    ("operations.md", "telemetry:\n  metrics_token"): "here",
    ("operations.md", "curl -H "): "here",
    ("operations.md", "export TUFT_METRICS_TOKEN"): CONTAINERS,
    ("operations.md", "telemetry:\n  enabled: true\n  service_name: tuft-prod"): "here",
    ("operations.md", "docker compose -f deploy/jaeger"): CONTAINERS,
    ("operations.md", "telemetry:\n  sampler:"): "here",
    ("operations.md", "session_id = "): "here",
    ("operations.md", "# OTLP over HTTP"): "tests/walkthroughs/document_tuft.py troubleshooting",
    ("request-tracing.md", "sample Req r1"): "- a drawing",
    ("request-tracing.md", "cmake --preset"): "tests/install/install_and_use.cmake --component tuft-telemetry",
    ("request-tracing.md", "find_package("): "tests/install/consumer/CMakeLists.txt find_package(tuft-telemetry",
    ("request-tracing.md", '#include "tuft/telemetry/request_trace.h"'): ROWS,
    ("request-tracing.md", "message.trace = "): ROWS,
    ("request-tracing.md", "const TraceStage stages[]"): ROWS,
    ("scaling.md", "supported_models:"): "tests/system/test_join.py test_the_commands_of_the_page",
    ("scaling.md", "bucket:"): "tests/system/test_bucket.py test_the_section_of_the_page",
    ("scaling.md", "openssl rand"): "tests/system/test_join.py test_the_commands_of_the_page",
    ("scaling.md", "tuft-worker --join"): "tests/system/test_join.py test_the_commands_of_the_page",
    ("scaling.md", "tuft workers"): "tests/system/test_join.py test_the_commands_of_the_page",
    ("signoz.md", "curl -fsSL"): CONTAINERS,
    ("signoz.md", "git clone"): CONTAINERS,
    ("signoz.md", "telemetry:"): "here",
    ("signoz.md", "tuft launch --config tuft.yaml"): "tests/system/test_readme.py test_the_start_command_names_the_file",
    ("signoz.md", "for view in"): "- SigNoz cannot run here; tests/deploy/test_signoz.py checks the files",
    ("telemetry.md", "telemetry:"): "here",
    ("terminal.md", "export TUFT_API_KEY"): "tests/system/test_terminal.py blocks",
    ("terminal.md", "tuft traces"): "tests/system/test_terminal.py blocks",
    ("terminal.md", "tuft logs"): "tests/system/test_terminal.py blocks",
    ("telemetry.md", "POST /api/v1/forward_backward"): "- a drawing",
    ("telemetry.md", "export OTEL_EXPORTER_OTLP_ENDPOINT"): "tests/system/test_intake.py OTEL_EXPORTER_OTLP_HEADERS",
    ("telemetry.md", "export OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"): "tests/e2e/test_collector.py test_a_server_with_the_two_endpoint_variables",
    ("telemetry.md", "static const Tracer"): POINTS,
    ("telemetry.md", "TUFT_TRACED_FUNCTION("): POINTS,
    ("telemetry.md", "std::thread("): POINTS,
    ("telemetry.md", "struct MyMetrics"): POINTS,
    ("telemetry.md", "log_info("): POINTS,
    ("telemetry.md", "TUFT_UPDATE_GOLDEN=1"): "- rewrites the lists that tests compare",
    ("telemetry.md", "struct OwnMetrics"): OWN,
    ("telemetry.md", "receivers:"): E2E_COLLECTOR,
}


def who_runs(page, text):
    found = [who for (name, begin), who in WHO.items() if name == page and text.startswith(begin)]
    assert len(found) == 1, f"{page}: {len(found)} entries of WHO are for the block that begins with {text[:60]!r}"
    return found[0]


def test_every_block_is_run_or_says_why_not():
    found = list(blocks())
    for page, language, text in found:
        who = who_runs(page, text)
        if who == "here" or who.startswith("- "):
            continue
        path, _, name = who.partition(" ")
        source = (ROOT / path).read_text()
        if language == "cpp":
            assert_lines_in_order(text, source, f"{page} and {path}")
        else:
            assert name in source, f"{page}: {path} has no {name}"
    left = [key for key in WHO if not any(page == key[0] and text.startswith(key[1]) for page, _, text in found)]
    assert not left, f"no page has these blocks: {left}"


def assert_lines_in_order(text, source, where):
    def plain(line):
        return re.sub(r"\s*//.*", "", line).strip()
    lines = iter([plain(line) for line in source.splitlines()])
    for line in map(plain, text.splitlines()):
        assert not line or line.startswith("#include") or line in lines, f"{where}: {line!r} is not in the source, or not in this order"


# ---- configurations: the server starts with them


def started(home, config, **environment):
    return TuftServer(home, yaml.safe_dump(config), env={**ENVIRONMENT, "SCRATCH": str(home), **environment})


def says(server, text):
    """The log is read by a thread, which can be a little late."""
    wait_until(lambda: text in server.log, 20, f"{text} in\n{server.log}")


@pytest.mark.parametrize("page, begin", [key for key, who in WHO.items() if who == "here" and key[1].startswith(
    ("telemetry:", "port: "))], ids=lambda text: re.sub(r"\W+", "-", text))
def test_a_server_starts_with_the_block(page, begin, model_dir, tmp_path):
    config = {**configuration(model_dir), **yaml.safe_load(block(page, begin))}
    with started(tmp_path, config) as server:
        says(server, "[server.ready]")
        assert "has no effect" not in server.log
        if config.get("telemetry", {}).get("enabled"):
            says(server, "[telemetry.started]")


def test_the_first_configuration_of_the_page_needs_nothing_else(model_dir, tmp_path):
    text = block("configuration.md", "supported_models:").replace("/models/Qwen3-0.6B", str(model_dir))
    config = yaml.safe_load(text)
    config["supported_models"][0]["max_model_len"] = 256  # the test's model is a small one
    with started(tmp_path, config) as server:
        says(server, "serving Qwen/Qwen3-0.6B")


def test_a_server_starts_with_the_file_in_opentelemetrys_format(model_dir, tmp_path):
    (tmp_path / "otel.yaml").write_text(block("configuration.md", "file_format:"))
    with started(tmp_path / "home", configuration(model_dir), OTEL_CONFIG_FILE=str(tmp_path / "otel.yaml"),
                 OTEL_RESOURCE_ATTRIBUTES="team=blue") as server:
        says(server, "traces: http/protobuf to http://localhost:4318/v1/traces")


# ---- commands and programs


def test_the_metrics_are_read_with_the_token(model_dir, tmp_path):
    config = {**configuration(model_dir), **yaml.safe_load(block("operations.md", "telemetry:\n  metrics_token"))}
    with started(tmp_path, config) as server:
        command = block("operations.md", "curl -H ")
        assert "http://localhost:10610" in command
        run = subprocess.run(["bash", "-c", command.replace("http://localhost:10610", server.url)], capture_output=True,
                             text=True, timeout=60, env={**clean_environment(), **ENVIRONMENT})
        assert "# TYPE tuft_workers gauge" in run.stdout, run
        without = subprocess.run(["curl", "-s", server.url + "/metrics"], capture_output=True, text=True, timeout=60)
        assert "tuft_workers" not in without.stdout


def test_a_key_and_its_hash_are_printed_as_on_the_page():
    command, *printed = block("configuration.md", "$ tuft hash-key --new").splitlines()
    run = tuft(*command.removeprefix("$ tuft ").split())
    assert run.returncode == 0, run
    expected = [re.sub(r"[0-9a-f]+\\\.\\\.\\\.(:[0-9a-f]+\\\.\\\.\\\.)?", lambda found: "[0-9a-f:]+", re.escape(line))
                for line in printed]
    lines = (run.stdout + run.stderr).splitlines()
    assert len(lines) == len(expected) == 2
    for line, form in zip(sorted(lines), sorted(expected)):
        assert re.fullmatch(form, line), (line, form)


def trained(server):
    client = service_client(server)
    trainer = client.create_lora_training_client(base_model=MODEL, rank=4)
    trainer.forward_backward([datum("abcdef")], "cross_entropy").result()
    trainer.optim_step(types.AdamParams(learning_rate=1e-3)).result()
    return client, trainer.save_weights_for_sampler("page").result().path


def test_the_program_with_openais_client_is_answered(server):
    program = block("openai.md", "from openai import")
    path = trained(server)[1]
    for old, new in ((ADDRESS, server.url), ("tml-...", ALICE), ("tinker://<run>/sampler_weights/<name>", path)):
        assert old in program
        program = program.replace(old, new)
    *lines, call = program.split("\nclient.")
    names = {}
    os.environ["NO_PROXY"] = "127.0.0.1,localhost"
    exec("\n".join([*lines, "answer = client." + call]), names)  # noqa: S102
    assert names["answer"].choices[0].message.role == "assistant"


def test_a_client_learns_its_ids(server, capsys):
    client, path = trained(server)
    client.create_sampling_client(model_path=path)
    exec(block("operations.md", "session_id = "), {"service_client": client})  # noqa: S102
    printed = capsys.readouterr().out
    session, = re.findall(r"^(\S+) \[", printed)
    assert f"{session}:train:0" in printed and f"{session}:sample:" in printed, printed
