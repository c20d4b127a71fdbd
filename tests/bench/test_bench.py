"""Tests what ./dev bench does when a peer is missing or fails, and what it writes. Measures nothing."""
import argparse
import json
import pathlib
import sys

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
import bench_model  # noqa: E402
import measure  # noqa: E402
import peer_server  # noqa: E402
import rivals  # noqa: E402
import run as front  # noqa: E402
from peers import environments  # noqa: E402
from suites import sampling  # noqa: E402

# Answers like a peer, and fails at its second sample.
FAKE_PEER = """
import json, sys
if "--check" in sys.argv:
    sys.exit()
asked_before = 0
for line in sys.stdin:
    asked = json.loads(line)
    if asked["op"] == "hello":
        reply = {"versions": {"fake": "1.0"}}
    elif asked_before < LIMIT:
        asked_before += 1
        reply = {"seconds": 1.0, "tokens": 64, "first_tokens": [7], "itl_ms": [1.0], "ttft_ms": [1.0], "peak_bytes": 0}
    else:
        reply = {"error": "TypeError: ContinuousBatchingConfig got an unexpected argument 'page_size'"}
    print(json.dumps(reply), flush=True)
"""


class Ours:
    def ask(self, **_):
        return {"seconds": 0.5, "tokens": 64, "first_tokens": [7], "itl_ms": [0.5], "ttft_ms": [0.5], "peak_bytes": 0}


@pytest.fixture
def options(tmp_path, monkeypatch):
    monkeypatch.setattr(bench_model, "make", lambda directory: directory)
    monkeypatch.setattr(environments, "HOME", tmp_path / "no-environments")
    return argparse.Namespace(python=None, tuft=None, llama_python=None, threads=1, scratch=tmp_path, peer_errors={},
                              out=tmp_path)


def fake_peer(monkeypatch, tmp_path, limit):
    (tmp_path / "fake.py").write_text(FAKE_PEER.replace("LIMIT", str(limit)))
    monkeypatch.setattr(rivals, "PEERS", tmp_path)
    monkeypatch.setitem(rivals.NEEDS, "transformers", ("fake.py", "ACTIVE", rivals.NEEDS["transformers"][2]))


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_peer_that_fails_is_left_out_with_its_error(options, tmp_path, monkeypatch, capsys, limit):
    """It fails at its first question, between the settings, or in the middle of the samples."""
    fake_peer(monkeypatch, tmp_path, limit)
    options.python = sys.executable
    with rivals.started(options, "transformers", "llama.cpp") as (children, notes):
        assert list(children) == ["transformers"]
        samples, _ = sampling.measure_case((1, 1, 64), {"ours": Ours(), **children}, 3)
        assert not children
    assert list(samples) == ["ours"] and len(samples["ours"]) == 3
    assert any("Not compared with llama.cpp" in note and "./dev bench --peers" in note for note in notes)
    assert any("Transformers + PEFT failed" in note and "page_size" in note for note in notes)
    assert "page_size" in capsys.readouterr().err


def test_a_peer_that_is_not_there_is_skipped_with_the_reason(options):
    options.tuft, options.peer_errors = None, {"tuft": "pip ended with 1: no matching distribution"}
    with rivals.started(options, "tuft") as (children, notes):
        assert not children
    assert "no matching distribution" in notes[0]
    options.tuft = "/nowhere/bin/tuft"
    with rivals.started(options, "tuft") as (children, notes):
        assert not children and "/nowhere/bin/python" in notes[0]


def test_a_peers_server_may_fail_and_ours_may_not(capsys):
    def broken():
        raise RuntimeError("the server did not start")

    notes = []
    assert peer_server.start_all(notes, ("FastAPI", broken), ("tuft", lambda: "running")) == {"tuft": "running"}
    assert "FastAPI failed" in notes[0] and "did not start" in notes[0]
    with pytest.raises(RuntimeError, match="did not start"):
        peer_server.start_all(notes, ("tuft", broken))
    samples = measure.interleaved({"tuft": lambda: {"seconds": 1}, "FastAPI": peer_server.guarded(notes, "FastAPI", broken)}, 2)
    assert list(samples) == ["tuft"]


def test_environments_are_made_by_their_requirements(tmp_path, monkeypatch):
    def run(*command):
        if "venv" in command:
            (command[-1] / "bin").mkdir(parents=True)
        elif "wrong" in command[-1].name:
            raise RuntimeError("pip ended with 1: no matching distribution")

    monkeypatch.setattr(environments, "run", run)
    (tmp_path / "requirements-good.txt").write_text("tinker==0.25.0\n")
    (tmp_path / "requirements-wrong.txt").write_text("there-is-no-such-package==1\n")
    said = []
    errors = environments.make(said.append, tmp_path, tmp_path / "made")
    assert errors == {"wrong": "pip ended with 1: no matching distribution"}
    assert (tmp_path / "made/good/bin").exists() and not (tmp_path / "made/wrong").exists()
    assert any("1 of 2: good" in line for line in said)
    said.clear()
    environments.make(said.append, tmp_path, tmp_path / "made")
    assert not any("good" in line for line in said), "it is there"
    (tmp_path / "requirements-good.txt").write_text("tinker==0.38.0\n")
    environments.make(said.append, tmp_path, tmp_path / "made")
    assert any("1 of 2: good" in line for line in said), "its versions have changed"


def test_a_command_that_fails_says_what_it_said():
    with pytest.raises(RuntimeError, match="ended with 3: no network"):
        environments.run(sys.executable, "-c", "import sys; print('no network', file=sys.stderr); sys.exit(3)")


def test_the_versions_of_the_peers_are_pinned():
    assert environments.names() == ["fastapi", "llamacpp", "transformers", "tuft"]
    for name in environments.names():
        lines = (BENCH / "peers" / f"requirements-{name}.txt").read_text().splitlines()
        assert all(line.startswith("#") or "==" in line for line in lines)


def test_results_hold_summaries_only():
    samples = [{"seconds": float(i), "tokens": 8, "gaps": [0.1] * 30, "note": "text"} for i in range(3)]
    written = json.loads(front.as_json({"date": "d", "data": [{"case": "c", "raw": samples}], "tables": [1], "notes": []}))
    raw = written["data"][0]["raw"]
    assert raw["seconds"] == {"median": 1.0, "min": 0.0, "max": 2.0, "samples": 3}
    assert raw["gaps"]["samples"] == 90 and raw["gaps"]["p99"] == 0.1
    assert "note" not in raw and "tables" not in written


def test_the_newest_result_says_how_long_a_suite_takes(options):
    (options.out / "2999-01-01-growth.json").write_text('{"took_seconds": 600}')
    assert front.expectation(options, "growth") == "about 10 min, as in 2999-01-01-growth.json"
    assert "not known" in front.expectation(options, "no-such-suite")


def test_there_is_one_result_a_suite():
    suites = [path.stem.split("-", 3)[3] for path in (BENCH / "results").glob("*.json")]
    assert len(suites) == len(set(suites))
    assert all(path.stat().st_size < 100_000 for path in (BENCH / "results").iterdir())
