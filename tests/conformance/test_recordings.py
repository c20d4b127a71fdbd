"""Repeats the requests that real SDKs of several versions have sent. The answers must be those that these SDKs
understood. record.py makes the recordings."""
import json
import pathlib

import pytest

from exchanges import Replay, content_type, readable, without_chance
from raw_client import RawClient
from tuft_server import ALICE, TuftServer, configuration

RECORDINGS = sorted((pathlib.Path(__file__).parent / "recordings").glob("*.jsonl"))


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.stem)
def test_the_answers_are_those_that_the_sdk_got(recording, model_dir, tmp_path):
    exchanges = [json.loads(line) for line in recording.read_text().splitlines()]
    with TuftServer(tmp_path / "home", configuration(model_dir)) as server:
        replay = Replay(RawClient(server.url, ALICE))
        for number, exchange in enumerate(exchanges, 1):
            answer = replay.send(exchange)
            what = f"{recording.name}, line {number}: {exchange['method']} {exchange['path']}: {answer}"
            assert (answer.status, content_type(answer.headers)) == (exchange["status"], exchange["type"]), what
            if answer.status != 204:
                assert int(answer.headers["Content-Length"]) == len(answer.body), what
            got = readable(answer.body, answer.headers, exchange["headers"].get("X-Tinker-Request-Type"))
            if isinstance(exchange["answer"], dict) and isinstance(exchange["answer"].get("sequences"), int):
                got = without_chance(got)
            assert not replay.differences(exchange["answer"], got, "answer"), what


def test_there_are_recordings_of_each_supported_sdk():
    versions = {path.stem.split("-")[0] for path in RECORDINGS}
    assert {"0.19.0", "0.24.1", "0.25.0"} <= versions
