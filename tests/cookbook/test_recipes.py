"""Runs each recipe of the table against a server of its own: `./dev e2e cookbook`."""
import math
import time

import pytest
import recipes
import running
from tuft_server import TuftServer


DIVERGENCE = 1e-5


def mean(values):
    return sum(values) / len(values)


def ends(values):
    """Returns the means of the first and of the last third."""
    third = max(1, len(values) // 3)
    return mean(values[:third]), mean(values[-third:])


def check_learning(recipe, found):
    key = recipe.falls or recipe.rises
    values = found.series(key)
    assert len(values) >= recipe.steps, f"{key}: {values}"
    assert all(map(math.isfinite, values)), values
    first, last = ends(values)
    gain = first - last if recipe.falls else last - first
    assert gain > recipe.at_least, f"{key} went from {first} to {last}: {values}"
    return f"{key} {first:.4g} -> {last:.4g}"


def check_numerics(recipe, found):
    """Sampling and training of the same weights must give the same log-probabilities. The recipes estimate the KL divergence
    of the two."""
    if not any(flag.startswith("max_steps_off_policy") for flag in recipe.flags):
        for divergence in found.series("optim/kl_sample_train_v2"):
            assert abs(divergence) < DIVERGENCE, found.series("optim/kl_sample_train_v2")


def check(recipe, found):
    if recipe.says:
        assert recipe.says in found.output, found.output[-3000:]
        return ""
    for name in ("state_path", "sampler_path"):
        assert found.checkpoints()[-1][name].startswith("tinker://")
    check_numerics(recipe, found)
    assert len(found.series(recipe.logs)) >= recipe.steps, found.rows
    return check_learning(recipe, found) if recipe.falls or recipe.rises else ""


@pytest.mark.parametrize("recipe", [pytest.param(one, id=one.name) for one in recipes.RECIPES])
def test_recipe(recipe, tmp_path):
    place = running.make_workplace(tmp_path / "place", recipe.models)
    recipes.prepare(place, "runs")
    with TuftServer(tmp_path / "home", running.configuration(recipe.models)) as server:
        if recipe.first:
            running.run(server, place, recipe.first, [], recipe.seconds, runs="first")
        begin = time.monotonic()
        found = running.run(server, place, recipe.module, recipe.arguments, recipe.seconds, stdin=recipe.stdin)
        spent = time.monotonic() - begin
        assert server.error_lines() == []
    running.RESULTS.append(f"{recipe.name}: {spent:.0f} s {check(recipe, found)}")
