"""Kills the server with SIGKILL in the middle of a recipe. The recipe, started again, continues the same curve."""
import os
import signal

import pytest
import recipes
import running
from tuft_server import TuftServer, alive, wait_until

STEPS, SAVE_EVERY, KILLED_AFTER = 14, 4, 7
FLAGS = ["batch_size=32", f"save_every={SAVE_EVERY}", f"max_steps={STEPS}"]
# chat_sl submits the next batch before it saves, so its checkpoint can hold up to two steps more than it says. The resumed
# recipe repeats them, and its loss is then lower by what two steps bring.
SUPERVISED = {
    "sl_loop": (FLAGS, 1e-5),
    "chat_sl.train": ([*FLAGS, "eval_every=0", "log_path=kept", "behavior_if_log_dir_exists=resume"], 0.05),
}


class Lives:
    """A server that keeps its state in a file and its port over restarts."""

    def __init__(self, home, models):
        self.home, self.models, self.server = home, models, None

    def start(self):
        port = self.server.url.rsplit(":", 1)[1] if self.server else "0"
        self.server = TuftServer(self.home, running.configuration(self.models, persistence={"mode": "FILE"}))
        self.server.arguments = ["--host", "127.0.0.1", "--port", port]
        return self.server.start()

    def kill(self):
        workers = self.server.worker_pids()
        os.kill(self.server.process.pid, signal.SIGKILL)
        self.server.wait_exit()
        (self.home / "tuft_current_server").unlink()
        wait_until(lambda: not any(alive(pid) for pid in workers), 20, "the workers end with their server")


@pytest.fixture
def lives(tmp_path):
    made = Lives(tmp_path / "home", [recipes.BASE, recipes.CHAT])
    yield made
    if made.server:
        made.server.stop()


def by_step(rows, key):
    return {row["step"]: row[key] for row in rows if key in row}


def run_until_killed(lives, place, module, flags):
    """Kills the server after some steps and starts it again. Returns the step of the last checkpoint, and the metrics."""
    with running.started(lives.start(), place, module, flags) as process:
        wait_until(lambda: len(running.metrics(place)) >= KILLED_AFTER, 180, f"{KILLED_AFTER} steps")
        lives.kill()
        before = running.metrics(place)
        lives.start()
        process.wait(timeout=120)
    first = running.outcome(place, process)
    assert first.status != 0, "the recipe went on with weights that the server had lost"
    saved = max(row["step"] for row in before) // SAVE_EVERY * SAVE_EVERY
    # The error tells the user which checkpoint is left, or that a restart loses what stable_reinforce recorded.
    lost = "server was restarted" in first.output and f"weights/{saved:06d}" in first.output
    assert lost or "the server restarts" in first.output, first.output[-3000:]
    return saved, before


@pytest.mark.parametrize("module", sorted(SUPERVISED))
def test_a_recipe_continues_the_curve_of_before_the_kill(lives, tmp_path, module):
    place = running.make_workplace(tmp_path / "place", [recipes.BASE])
    (flags, tolerance), key = SUPERVISED[module], "train_mean_nll"
    saved, before = run_until_killed(lives, place, module, flags)
    before = by_step(before, key)
    running.run(lives.server, place, module, flags, seconds=120)
    whole = running.metrics(place)
    assert max(row["step"] for row in whole) == STEPS - 1
    # metrics.jsonl has the steps after the checkpoint twice: as the killed server computed them, and as the next one did.
    after = by_step(whole, key)
    twice = [step for step in before if step >= saved]
    assert twice and min(after) == 0
    assert [after[step] for step in twice] == pytest.approx([before[step] for step in twice], rel=tolerance)
    running.RESULTS.append(f"{module}, server killed after step {max(before)}: steps {saved} to {STEPS - 1} again; step "
                           f"{max(twice)} had loss {before[max(twice)]:.6f} and has {after[max(twice)]:.6f}")


def test_reinforcement_learning_goes_on_at_the_checkpoint(lives, tmp_path):
    place = running.make_workplace(tmp_path / "place", [recipes.CHAT])
    key = "env/all/reward/total"
    flags = ["env=gsm8k", "max_tokens=32", "groups_per_batch=16", f"save_every={SAVE_EVERY}", "eval_every=0",
             f"max_steps={STEPS}", "log_path=kept", "behavior_if_log_dir_exists=resume"]
    saved, before = run_until_killed(lives, place, "math_rl.train", flags)
    found = running.run(lives.server, place, "math_rl.train", flags, seconds=180)
    assert f"batch={saved}" in found.output.replace("'batch': ", "batch="), found.output[-3000:]
    after = by_step(running.metrics(place), key)
    assert sorted(after) == list(range(STEPS))
    running.RESULTS.append(
        f"math_rl.train, server killed after step {max(by_step(before, key))}: went on at step {saved}, rewards "
        f"{[round(value, 2) for value in after.values()]}")
