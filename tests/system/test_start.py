"""Tests the command line: valid and invalid starts, and the messages."""
import json
import os
import pathlib
import shutil
import signal
import socket
import time

import pytest

import tuft_server
from raw_client import RawClient
from tuft_server import ALICE, MODEL, TuftServer, as_yaml, configuration, tuft, wait_until

SECRET = "tml-a-very-secret-key"


def launch(home, config, *arguments, env=None):
    pathlib.Path(home).mkdir(parents=True, exist_ok=True)
    path = pathlib.Path(home) / "tuft.yaml"
    path.write_text(config if isinstance(config, str) else as_yaml(config))
    return tuft("launch", "-c", path, *(arguments or ("--port", "0")), env={"TUFT_HOME": str(home), **(env or {})})


def test_a_mistyped_command_is_answered_with_the_nearest_one():
    run = tuft("lunch")
    assert run.returncode == 2 and "there is no command 'lunch'; did you mean 'launch'?" in run.stderr, run


def test_version():
    run = tuft("--version")
    version = (pathlib.Path(__file__).resolve().parents[2] / "version.txt").read_text().strip()
    assert (run.returncode, run.stdout.strip()) == (0, f"tuft {version}")


def test_help_names_the_commands():
    run = tuft("--help")
    assert run.returncode == 0
    assert all(word in run.stdout for word in ("launch", "init-model", "clear"))
    flags = tuft("launch", "--help").stdout
    assert all(flag in flags for flag in ("--host", "--port", "-p", "--log-level", "--config", "-c", "--checkpoint-dir", "--reload"))


@pytest.mark.parametrize("arguments", [[], ["lunch"], ["launch", "--prot", "1"], ["launch", "--port", "many"],
                                       ["launch", "--port", "70000"], ["launch", "extra"], ["clear"]])
def test_a_wrong_command_line_is_a_usage_error(arguments):
    run = tuft(*arguments)
    assert run.returncode == 2, run
    assert run.stderr.strip()


def test_no_configuration_anywhere_names_where_it_was_looked_for(tmp_path):
    run = tuft("launch", env={"TUFT_HOME": str(tmp_path)})
    assert run.returncode == 2
    assert str(tmp_path / "configs/tuft_config.yaml") in run.stderr


@pytest.mark.parametrize("mistake, message", [
    ("supported_models: [", "this is not YAML"),
    ("supported_models: []", "at least one model"),
    ({"modell_owner": "x"}, "did you mean 'model_owner'?"),
    ({"model": {"max_lora_rank": "many"}}, "max_lora_rank: must be a whole number"),
    ({"model": {"model_path": "/nowhere"}}, "there is no directory /nowhere"),
    ({"persistence": {"mode": "REDISS"}}, "must be one of DISABLE, FILE, REDIS"),
    ({"log_level": "loud"}, "log_level: must be"),
])
def test_a_mistake_in_the_configuration_is_said_without_a_traceback_or_a_key(mistake, message, model_dir, tmp_path):
    config = mistake if isinstance(mistake, str) else configuration(model_dir, **mistake, authorized_users={SECRET: "alice"})
    run = launch(tmp_path, config)
    said = run.stdout + run.stderr
    assert run.returncode == 1, said
    assert message in said
    assert SECRET not in said and "terminate" not in said
    assert len(said.splitlines()) <= 3


def test_a_missing_file_is_named(tmp_path):
    run = tuft("launch", "-c", tmp_path / "nothing.yaml")
    assert run.returncode == 1 and "nothing.yaml" in run.stderr


def test_a_port_in_use_is_said_before_the_weights_are_read(model_dir, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        run = launch(tmp_path, configuration(model_dir), "--port", port)
    assert run.returncode == 1
    assert port in run.stderr and "in use" in run.stderr
    assert not (tmp_path / "tuft_current_server").exists()


@pytest.mark.parametrize("damage", ["weights", "config", "architecture"])
def test_a_model_that_cannot_be_read_ends_the_start_with_the_workers_message(damage, model_dir, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(model_dir, broken)
    if damage == "weights":
        weights = broken / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:1000])
    elif damage == "config":
        (broken / "config.json").write_text("{")
    else:
        config = json.loads((broken / "config.json").read_text())
        config["architectures"], config["model_type"] = ["MambaForCausalLM"], "mamba"
        (broken / "config.json").write_text(json.dumps(config))
    began = time.monotonic()
    run = launch(tmp_path / "home", configuration(broken))
    assert run.returncode == 1, run.stderr
    assert time.monotonic() - began < 30
    expected = {"weights": "safetensors", "config": "config.json", "architecture": "amba"}[damage]
    assert expected in run.stderr, run.stderr


@pytest.mark.parametrize("key, value", [("max_model_len", 10**6), ("adapter_memory_bytes", 1000)])
def test_a_json_log_has_the_cause_of_a_refused_setting_of_a_model(key, value, model_dir, tmp_path):
    run = launch(tmp_path, configuration(model_dir, model={key: value}), "--port", "0", "--log-format", "json")
    assert run.returncode == 1, run.stderr
    errors = [line for line in map(json.loads, run.stderr.splitlines()) if line["level"] == "ERROR"]
    causes = [line["message"] for line in errors if line["event"] == "worker.load_failed"]
    assert len(causes) == 1 and key in causes[0] and str(value) in causes[0], errors
    assert errors[-1]["event"] == "server.start_failed", errors
    assert "started again" not in run.stderr, "it is not"


def test_flags_go_over_variables_over_the_file(model_dir, tmp_path):
    env = {"TUFT_LOG_LEVEL": "error", "TUFT_CHECKPOINT_DIR": str(tmp_path / "by_variable")}
    config = configuration(model_dir, log_level="debug", checkpoint_dir=str(tmp_path / "by_file"))
    with TuftServer(tmp_path / "home", config, env=env, arguments=["--checkpoint-dir", tmp_path / "by_flag"]):
        assert (tmp_path / "by_flag").is_dir()
        assert not (tmp_path / "by_variable").exists() and not (tmp_path / "by_file").exists()


def test_ready_is_one_line_and_json_logs_are_json(model_dir, tmp_path):
    with TuftServer(tmp_path / "home", configuration(model_dir), arguments=["--log-format", "json"]) as server:
        ready = wait_until(lambda: [line for line in server.lines if "server.ready" in line], 10, "the ready line")
        assert len(ready) == 1
        assert f"serving {MODEL} on {server.url}" in json.loads(ready[0])["message"]
        # libprotobuf's own line about a string that is not UTF-8 must not be among them.
        client = RawClient(server.url, ALICE)
        assert client.post_protobuf("forward_backward", b"\x0a\x02m\xff").status == 400
        for line in list(server.lines):
            json.loads(line)


def test_keys_of_other_engines_warn_once_and_reload_is_taken(model_dir, tmp_path):
    config = configuration(model_dir, model={"tensor_parallel_size": 1, "micro_batch_size": 2}, authorized_users={SECRET: "a"})
    with TuftServer(tmp_path / "home", config, arguments=["--reload"]) as server:
        wait_until(lambda: "server.ready" in server.log or "serving" in server.log, 10, "ready")
        assert server.log.count("micro_batch_size: has no effect") == 1
        assert server.log.count("--reload has no effect") == 1
        assert SECRET not in server.log


def test_two_models_side_by_side(model_dir, tmp_path):
    other = tuft_server.init_model(tmp_path / "llama", "--family", "llama", "--size", "tiny", "--seed", "1")
    config = configuration(model_dir)
    config["supported_models"].append({"model_name": "other", "model_path": str(other), "max_model_len": 64})
    with TuftServer(tmp_path / "home", config) as server:
        client = RawClient(server.url, tuft_server.ALICE)
        names = [model["model_name"] for model in client.get("get_server_capabilities").json["supported_models"]]
        assert names == [MODEL, "other"]
        assert len(server.worker_pids()) == 2
        for name in names:
            model = client.model(name)
            assert client.result(client.train(model, 1), protobuf=True).status == 200


def test_a_signal_during_the_start_ends_it(model_dir, tmp_path):
    server = TuftServer(tmp_path / "home", configuration(model_dir)).spawn()
    wait_until(lambda: server.worker_pids() or server.process.poll() is not None or server.lines, 20, "it has begun")
    server.process.send_signal(signal.SIGTERM)
    assert server.wait_exit(6) == 0, server.log


@pytest.mark.parametrize("persistence, message", [
    ({"mode": "REDIS", "redis_url": "redis://:hush@127.0.0.1:1/2"}, "persistence.redis_url: Redis at 127.0.0.1:1, database 2"),
    ({"mode": "REDIS", "redis_url": "rediss://:hush@h"}, "persistence.redis_url: redis_url asks for TLS"),
    ({"mode": "FILE", "file_path": "/proc/x.db"}, "persistence.file_path: SQLite file /proc/x.db"),
])
def test_a_store_that_cannot_be_used_stops_the_start(persistence, message, model_dir, tmp_path):
    server = TuftServer(tmp_path, configuration(model_dir, persistence=persistence)).spawn()
    assert server.wait_exit() == 1
    assert message in server.log and "hush" not in server.log


def test_clear_persistence_says_that_there_is_none(model_dir, tmp_path):
    path = tmp_path / "tuft.yaml"
    path.write_text(as_yaml(configuration(model_dir)))
    run = tuft("clear", "persistence", "-c", path, "--force", env={"TUFT_HOME": str(tmp_path)})
    assert run.returncode == 0 and "disabled" in run.stdout
    assert tuft("clear", "persistence", env={"TUFT_HOME": str(tmp_path / "empty")}).returncode == 1


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_init_model_writes_a_directory_that_transformers_reads(family, tmp_path):
    from transformers import AutoConfig, AutoTokenizer
    directory = tuft_server.init_model(tmp_path / family, "--family", family, "--size", "tiny", "--seed", "3")
    assert AutoConfig.from_pretrained(directory).model_type == family
    tokenizer = AutoTokenizer.from_pretrained(directory)
    for text in ("plain", "Grüße, 世界 🙂"):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text
    again = tuft_server.init_model(tmp_path / "again", "--family", family, "--size", "tiny", "--seed", "3")
    assert (directory / "model.safetensors").read_bytes() == (again / "model.safetensors").read_bytes()
    written = tuft("init-model", tmp_path / "third", "--family", family, "--size", "tiny")
    assert written.stdout == f"wrote a base model with random weights to {tmp_path / 'third'}\n", written
    taken = tuft("init-model", directory, "--family", family)
    assert taken.returncode == 1 and "exists" in taken.stderr
    assert tuft("init-model", tmp_path / "x", "--family", "mamba").returncode != 0
    assert not (tmp_path / "x").exists()


def test_the_file_limit_is_raised(model_dir, tmp_path):
    with TuftServer(tmp_path / "home", configuration(model_dir)) as server:
        for line in pathlib.Path(f"/proc/{server.process.pid}/limits").read_text().splitlines():
            if line.startswith("Max open files"):
                soft, hard = line.split()[3:5]
                assert soft == hard


def test_the_sockets_are_private_and_gone_at_the_end(model_dir, tmp_path):
    short = pathlib.Path(f"/tmp/tuft_sockets_{os.getpid()}")
    short.mkdir()
    try:
        with TuftServer(tmp_path / "home", configuration(model_dir), env={"XDG_RUNTIME_DIR": str(short)}):
            (directory,) = list(short.iterdir())
            assert directory.stat().st_mode & 0o777 == 0o700
        assert not list(short.iterdir())
    finally:
        shutil.rmtree(short)
