"""Measures which share of the time the engine computes while an asynchronous recipe keeps 64 samples in flight."""
import json
import resource
import time

import recipes
import running
from tuft_server import TuftServer

GROUPS, GROUP_SIZE, STEPS_OFF_POLICY = 8, 4, 1
IN_FLIGHT = GROUPS * GROUP_SIZE * (STEPS_OFF_POLICY + 1)
STEPS = 5
FLAGS = ["env=gsm8k", f"groups_per_batch={GROUPS}", f"group_size={GROUP_SIZE}", "max_tokens=128",
         f"max_steps_off_policy={STEPS_OFF_POLICY}", "eval_every=0", f"max_steps={STEPS}"]
# While one of these spans is open, the engine has something to compute. They begin when the engine takes the work up, not
# when it arrives. Single steps of the sampler would be more exact, but only one in 128 has a span.
ENGINE = {"PREFILL", "DECODE", "engine.forward", "engine.backward", "engine.optim_pass", "hf_model.optim_step",
          "hf_model.publish_adapter"}
BUSY = 0.95


def client_seconds():
    """Returns the processor time of the programs that have ended: the recipe's, as the server has not."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def spans(path):
    """Yields name, begin and end (in seconds) of every span."""
    for line in path.read_text().splitlines():
        for group in json.loads(line).get("resourceSpans", []):
            for scope in group["scopeSpans"]:
                for span in scope["spans"]:
                    yield span["name"], int(span["startTimeUnixNano"]) / 1e9, int(span["endTimeUnixNano"]) / 1e9


def covered(intervals):
    """Returns the time that at least one of the intervals covers."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def gaps(intervals):
    """Returns the times between the intervals, longest first."""
    found, reached = [], None
    for begin, end in sorted(intervals):
        if reached is not None and begin > reached:
            found.append(begin - reached)
        reached = end if reached is None else max(reached, end)
    return sorted(found, reverse=True)


def test_the_engine_of_an_asynchronous_loop_is_hardly_ever_idle(tmp_path):
    place = running.make_workplace(tmp_path / "place", [recipes.CHAT])
    trace = tmp_path / "otlp.jsonl"
    config = running.configuration([recipes.CHAT], running.untrained_model(width=384, layers=6),
                                   telemetry={"enabled": True, "protocol": "file", "file_path": str(trace)})
    with TuftServer(tmp_path / "home", config) as server:
        started, used = time.time(), client_seconds()
        found = running.run(server, place, "math_rl.train", FLAGS, seconds=500)
        used = client_seconds() - used
        computed = server.metric("tuft_scheduler_step_duration_seconds_sum")
    assert len(found.series("env/all/reward/total")) == STEPS
    made = list(spans(trace))
    # The loop: from the first token to the end of the last training step.
    begin = min(start for name, start, _ in made if name == "PREFILL")
    end = max(end for name, _, end in made if name == "hf_model.optim_step")
    work = [(start, stop) for name, start, stop in made if name in ENGINE and begin <= start and stop <= end]
    whole, busy = end - begin, covered(work) / (end - begin)
    running.RESULTS.append(
        f"rate: {IN_FLIGHT} samples in flight, {STEPS} steps in {whole:.1f} s; by the trace the engine has work {busy:.1%} of "
        f"the time; by its metrics it computes {computed / whole:.1%}; longest idle times "
        f"{[round(gap, 3) for gap in gaps(work)[:3]]} s; the client took {begin - started:.1f} s until its first token and "
        f"{used:.1f} s of processor time in all")
    assert min(busy, computed / whole) >= BUSY, running.RESULTS[-1]
