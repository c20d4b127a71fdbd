"""Runs `tuft top`, `traces`, `trace` and `logs` against the real server, in pipes and in a terminal."""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import termios
import threading

import pytest
import tinker

import tuft_server
from conftest import service_client
from examples_of_data import datum
from raw_client import RawClient
from test_tls import make_certificates, tls_of
from tuft_server import ALICE, BIN, BOB, MODEL, TuftServer, clean_environment, configuration, wait_until

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs/terminal.md").read_text()
ROOT_KEY = "tml-root"
WORK = "future_store.execute_operation"
CONSOLE = {"console": {"operators": ["root"]}, "authorized_users": {**tuft_server.USERS, ROOT_KEY: "root"}}


@pytest.fixture(scope="module")
def server(model_dir, tmp_path_factory):
    with TuftServer(tmp_path_factory.mktemp("home"), configuration(model_dir, **CONSOLE)) as running:
        yield running


@pytest.fixture(scope="module")
def run_id(server):
    """A run of alice with a few steps, whose telemetry can be found."""
    training = service_client(server).create_lora_training_client(base_model=MODEL, rank=8, seed=1)
    for _ in range(3):
        training.forward_backward([datum("what alice trains on")], "cross_entropy")
        training.optim_step(tinker.types.AdamParams(learning_rate=1e-3)).result()
    run = training.get_info().model_id
    wait_until(lambda: len(traces(server, "--run", run, "--operation", "optim_step", "--name", WORK)) == 3, 30,
               "the traces of the run are in the store")
    return run


def command(server, *words, key=ALICE, env=None, timeout=60):
    environment = {"TUFT_API_KEY": key, "TUFT_URL": server.url, "TZ": "UTC", "LANG": "C.UTF-8", **(env or {})}
    return tuft_server.tuft(*words, env={name: value for name, value in environment.items() if value}, timeout=timeout)


def output(server, *words, key=ALICE):
    run = command(server, *words, key=key)
    assert run.returncode == 0, run.stderr
    return run.stdout


def traces(server, *words, key=ALICE):
    return json.loads(output(server, "traces", "--json", *words, key=key))["traces"]


def test_traces_are_found_by_their_keys(server, run_id):
    found = traces(server, "--run", run_id, "--operation", "optim_step", "--name", WORK)
    assert len(found) == 3 and {trace["operation"] for trace in found} == {"optim_step"}
    assert all(trace["run"] == run_id and trace["user"] == "alice" for trace in found)
    assert traces(server, "--run", run_id, "--status", "error") == []
    longest = max(trace["match"]["duration"] for trace in found)
    assert traces(server, "--run", run_id, "--min-duration", f"{int(longest) + 1000}us", "--name", WORK,
                  "--operation", "optim_step") == []
    assert len(traces(server, "--run", run_id, "--limit", "2")) == 2
    table = output(server, "traces", "--run", run_id)
    assert table.splitlines()[0].startswith("TRACE") and found[0]["trace_id"] in table and "optim_step" in table


def test_a_trace_is_explained_and_drawn(server, run_id):
    trace_id = traces(server, "--name", WORK, "--operation", "forward_backward")[0]["trace_id"]
    text = output(server, "trace", trace_id)
    assert f"trace {trace_id}" in text and "Where the time went" in text
    assert "training_controller.run_forward_backward" in text and "█" in text
    assert re.search(r"^.\*", text, re.M), "no span of the critical path is marked"
    whole = json.loads(output(server, "trace", trace_id, "--json"))
    assert whole["trace_id"] == trace_id and len(whole["spans"]) > 3
    assert whole["explanation"]["summary"] in " ".join(text.split())


def test_a_user_sees_nothing_of_another(server, run_id):
    trace_id = traces(server, "--run", run_id)[0]["trace_id"]
    assert traces(server, "--run", run_id, key=BOB) == []
    refused = command(server, "trace", trace_id, key=BOB)
    unknown = command(server, "trace", "0" * 31 + "1", key=BOB)
    assert refused.returncode == unknown.returncode == 1
    assert refused.stderr.replace(trace_id, "") == unknown.stderr.replace("0" * 31 + "1", "")
    assert traces(server, "--run", run_id, key=ROOT_KEY) != []


def test_logs_are_lines_or_objects(server, run_id):
    records = [json.loads(line) for line in output(server, "logs", "--json", "--level", "info", key=ROOT_KEY).splitlines()]
    assert any(record["event"] == "server.ready" for record in records), records
    assert [record["time"] for record in records] == sorted(record["time"] for record in records)
    text = output(server, "logs", "--event", "server.ready", key=ROOT_KEY)
    assert re.match(r"\d\d:\d\d:\d\d\.\d{3} info    tuft server\.ready  tuft .* serving tiny", text), text


def test_logs_follow(server, run_id):
    process = subprocess.Popen([BIN / "tuft", "logs", "--follow", "--json"], stdout=subprocess.PIPE, text=True,
                               env={**clean_environment(), "TUFT_API_KEY": ROOT_KEY, "TUFT_URL": server.url})
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(iter(process.stdout.readline, "")), daemon=True)
    reader.start()
    wait_until(lambda: lines, 20, "the newest records are printed")
    before = len(lines)
    session = RawClient(server.url, BOB).session()
    wait_until(lambda: any(session in line for line in lines[before:]), 30, "a record of the new session is printed")
    times = [json.loads(line)["time"] for line in lines]
    assert len(set(lines)) == len(lines) and times[before:] == sorted(times[before:])
    process.send_signal(signal.SIGINT)
    process.wait(timeout=10)


def test_one_picture_of_top(server, run_id):
    text = output(server, "top", "--once", key=ROOT_KEY)
    assert "\x1b" not in text
    assert re.search(r"^tuft \S+  http://127\.0\.0\.1:\d+  ready  up .*root \(operator\)", text), text
    assert re.search(r"^tiny\s+ready", text, re.M), text
    assert "telemetry  spans" in text and "forward_backward" in text


class Terminal:
    """`tuft top` in a terminal of its own."""

    def __init__(self, server, columns, rows, key):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(BIN / "tuft", ["tuft", "top", "--interval", "0.5"],
                      {**clean_environment(), "TERM": "xterm", "TUFT_API_KEY": key, "TUFT_URL": server.url})
        self.seen = b""
        self.resize(columns, rows)

    def resize(self, columns, rows):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys):
        os.write(self.fd, keys)

    def picture(self):
        """Reads what there is, and returns the lines of the newest whole picture without styles."""
        while select.select([self.fd], [], [], 0.05)[0]:
            try:
                self.seen += os.read(self.fd, 65536)
            except OSError:
                break
        whole = [part for part in self.seen.split(b"\x1b[H") if part.endswith(b"\x1b[J")]
        text = whole[-1].decode() if whole else ""
        return [re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line) for line in text.replace("\r", "").split("\n")]

    def wait_for(self, text):
        wait_until(lambda: any(text in line for line in self.picture()), 30, f"'{text}' is on the screen")

    def end(self):
        self.press(b"q")
        self.picture()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_top_in_a_terminal(server, run_id):
    terminal = Terminal(server, 80, 24, ROOT_KEY)
    terminal.wait_for("forward_backward")
    assert len(terminal.picture()) == 24 and all(len(line) <= 80 for line in terminal.picture())
    terminal.press(b"\t")
    terminal.wait_for("USER")
    terminal.wait_for("alice")
    terminal.press(b"4")
    terminal.wait_for(run_id[:20])
    terminal.resize(50, 12)
    wait_until(lambda: len(terminal.picture()) == 12 and all(len(line) <= 50 for line in terminal.picture()), 20,
               "the picture fits the smaller terminal")
    assert terminal.end() == 0
    # The screen of the shell is back, with its cursor.
    assert terminal.seen.startswith(b"\x1b[?1049h") and terminal.seen.endswith(b"\x1b[?25h\x1b[?1049l")


def test_top_of_a_user_shows_only_what_is_theirs(server, run_id):
    terminal = Terminal(server, 100, 30, BOB)
    terminal.wait_for("tiny")
    terminal.press(b"4")
    terminal.wait_for("no training run")
    terminal.press(b"2")
    terminal.wait_for("bob")
    assert not any("alice" in line for line in terminal.picture())
    assert terminal.end() == 0


@pytest.mark.parametrize("words, env, said", [
    (["top"], {}, "needs a terminal"),
    (["traces"], {"TUFT_API_KEY": None}, "set TUFT_API_KEY"),
    (["traces"], {"TUFT_API_KEY": "tml-wrong"}, "set TUFT_API_KEY to another"),
    (["traces"], {"TUFT_URL": "http://127.0.0.1:1"}, "start the server with 'tuft launch'"),
    (["traces"], {"TUFT_URL": "ftp://x"}, "is not the address of a server"),
    (["traces", "--from", "soon"], {}, "'soon' is not a time"),
    (["traces", "--min-duration", "long"], {}, "'long' is not a duration"),
    (["traces", "--api-key", "tml-alice"], {}, "set TUFT_API_KEY"),
    (["trace", "xyz"], {}, "32 digits"),
    (["logs", "--level", "loud"], {}, "--level"),
    (["trces"], {}, "did you mean 'traces'?"),
])
def test_errors_are_one_line_with_the_cure(server, words, env, said):
    environment = {"TUFT_API_KEY": ALICE, **env}
    run = command(server, *words, key=environment.pop("TUFT_API_KEY"), env=environment)
    assert run.returncode in (1, 2) and said in run.stderr, run.stderr
    assert run.stdout == "" and "tml-" not in run.stderr
    assert len(run.stderr.splitlines()) <= 2, run.stderr


def test_a_server_that_runs_here_is_found_without_its_address(server, run_id):
    run = command(server, "traces", "--json", env={"TUFT_URL": None, "TUFT_HOME": str(server.home)})
    assert run.returncode == 0 and json.loads(run.stdout)["traces"], run.stderr


def test_https_is_verified(model_dir, tmp_path):
    files = make_certificates(tmp_path / "tls")
    other = make_certificates(tmp_path / "other")
    patch = pytest.MonkeyPatch()
    patch.setenv("SSL_CERT_FILE", str(files / "ca.pem"))
    with TuftServer(tmp_path / "home", configuration(model_dir, tls=tls_of(files))) as server:
        patch.undo()
        for word in ([], ["--ca-file", other / "ca.pem"]):
            refused = command(server, "traces", *word)
            assert refused.returncode == 1 and "--ca-file" in refused.stderr, refused.stderr
        by_name = server.url.replace("127.0.0.1", "localhost")
        for url in (server.url, by_name):
            run = command(server, "traces", "--json", "--url", url, "--ca-file", files / "ca.pem")
            assert run.returncode == 0, run.stderr
    patch.undo()


def commands_of_the_page():
    blocks = re.findall(r"(?ms)^```sh\n(.*?)^```$", PAGE)
    return [line for block in blocks for line in block.splitlines() if line.startswith("tuft ")]


@pytest.mark.parametrize("line", commands_of_the_page())
def test_commands_of_the_page_run(server, run_id, line):
    run = command(server, *shlex.split(line)[1:], key=ROOT_KEY)
    assert run.returncode == 0, run.stderr
