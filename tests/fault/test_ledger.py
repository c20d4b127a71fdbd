"""Checks that the ledger of test_crash.py notices data that a killed server has lost or changed: each test removes or
changes some between two lives."""
import random
import shutil
import threading
import time

import pytest

import redis_server
from ledger import Broken
from lives import Lives
from test_crash import Crashes

pytestmark = pytest.mark.skipif(redis_server.MISSING is not None, reason=str(redis_server.MISSING))


def forget(kind):
    """Returns a function that deletes a record on which a client relies."""
    def take_away(lives, trainers):
        keys = {"future": [op.request for one in trainers for op in one.ops if op.ok],
                "sampling_session": [one.samplers[-1][0] for one in trainers if one.samplers],
                "training_run": [one.model for one in trainers if one.model]}[kind]
        answer = lives.redis.command(f'DEL "crash::{kind}::{keys[0]}"\r\n'.encode())
        assert answer == b":1\r\n", (keys[0], answer)
    return take_away


def training_checkpoints(lives, trainer):
    """Returns the directories of a run's checkpoints, oldest first, by their names in the ledger."""
    directories = {}
    for metadata in (lives.home / "checkpoints").rglob("metadata.json"):
        text = metadata.read_text()
        for anchor in trainer.anchors:
            if f"{trainer.model}/weights/{anchor.name}\"" in text.replace("\\/", "/"):
                directories[anchor.name] = metadata.parent
    return directories


def other_moments(lives, trainers):
    """Gives the newest checkpoint of each run the optimizer state of the oldest."""
    changed = 0
    for trainer in trainers:
        found = training_checkpoints(lives, trainer)
        names = [anchor.name for anchor in trainer.anchors if anchor.name in found]
        older = [name for name in names if name != names[-1]]  # one name is saved repeatedly
        if not older:
            continue
        for file in found[older[0]].glob("*optim*"):
            shutil.copy(file, found[names[-1]] / file.name)
            changed += 1
    assert changed, "the test changed nothing"


@pytest.mark.parametrize("what", ["future", "sampling_session", "training_run"])
def test_a_lost_record_is_missed(what, model_dir, tmp_path):
    assert_noticed(model_dir, tmp_path, forget(what))


def test_another_optimizer_state_is_noticed(model_dir, tmp_path):
    assert_noticed(model_dir, tmp_path, other_moments)


def assert_noticed(model_dir, tmp_path, take_away):
    lives = Lives("REDIS", model_dir, tmp_path)
    try:
        crashes = Crashes(lives, random.Random(3))
        live(crashes)
        lives.kill_server()
        take_away(lives, crashes.trainers)
        crashes.url = lives.start()
        with pytest.raises(Broken) as noticed:
            crashes.after_restart()
            live(crashes)
            crashes.raise_errors("server")
        print(noticed.value)
    finally:
        lives.end()


def live(crashes, seconds=1.5):
    stop = threading.Event()
    threads = [threading.Thread(target=trainer.live, args=(stop,)) for trainer in crashes.trainers]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
