"""What 1,000 workers and 100,000 runs cost the control plane: `tuft_placement_bench`, with workers that are fakes."""
import json
import statistics
import subprocess

import measure

WORKERS, RUNS = 1_000, 100_000
SWEEPS = {"placement": "RunPlacement", "executor": "RunExecutor", "activity": "ActivityLog, once a minute"}


def sample(program):
    done = subprocess.run([program, str(WORKERS), str(RUNS)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{program.name}: {done.stderr[-1000:]}")
    return json.loads(done.stdout)


def run(options):
    program = options.programs.parent / "bench" / "tuft_placement_bench"
    if not program.exists():
        raise measure.Skip(f"{program.name} is not built")
    samples = measure.interleaved({"placement": lambda: sample(program)}, options.repetitions, warm_up=0)["placement"]
    return report(samples)


def spread(samples, *path):
    def value(one):
        for key in path:
            one = one[key]
        return one
    return measure.spread([value(one) for one in samples])


def decision_rows(samples):
    for number, decision in enumerate(samples[0]["decisions"]):
        yield [f"{decision['workers']:,}", spread(samples, "decisions", number, "per_second"),
               spread(samples, "decisions", number, "us"), spread(samples, "decisions", number, "samples_per_second")]


def state_rows(samples):
    first = samples[0]
    return [["runs created a second, each with a decision", spread(samples, "plane", "created_per_second")],
            ["a run, bytes", spread(samples, "plane", "run_bytes")],
            ["of which its RunPlace, bytes", spread(samples, "places", "place_bytes")],
            ["a worker, bytes", spread(samples, "places", "worker_bytes")],
            ["all runs, allocated MB", spread(samples, "plane", "without_futures", "heap_mb")],
            ["all runs and the answers of create_model, resident MB", spread(samples, "plane", "with_futures", "resident_mb")],
            ["fewest and most runs of a worker", f"{first['places']['fewest_runs']} and {first['places']['most_runs']}"],
            [f"sweep that moves the {first['loss']['moved']} runs of a lost worker, ms",
             spread(samples, "loss", "moving_sweep_ms")],
            ["sweep that moves a run back for balance, ms", spread(samples, "loss", "balancing_sweep_ms")],
            [f"sweeps until {first['loss']['returned']} runs are back, four a second in a server",
             spread(samples, "loss", "balancing_sweeps")]]


def report(samples):
    each_250_ms = sum(statistics.median(one["sweeps_ms"][name]["median"] for one in samples) for name in SWEEPS)
    return dict(
        data=samples,
        tables=[dict(title="Decisions on one thread: where a run is to live (Model::for_training()), and where a sample runs",
                     columns=["workers", "for runs, a second", "us each", "samples submitted, sent and answered, a second"],
                     rows=list(decision_rows(samples))),
                dict(title=f"A control plane with {WORKERS:,} workers and {RUNS:,} runs", columns=["what", ""],
                     rows=state_rows(samples)),
                dict(title=f"Sweeps over {RUNS:,} runs, nothing to do; a server calls each four times a second",
                     columns=["sweep of", "median, ms", "longest, ms"],
                     rows=[[title, *(spread(samples, "sweeps_ms", name, key) for key in ("median", "longest"))]
                           for name, title in SWEEPS.items()])],
        notes=["Placement: the workers answer at once inside the process, with empty messages, so a number is the control "
               "plane's own work. The configuration allows 256 workers of a base model; 1,000 are made past it.",
               f"The sweeps of this table together are {each_250_ms:.0f} ms of every 250 ms: "
               f"{each_250_ms / 250:.0%} of one core while nothing happens. The runs are those of "
               "100 users; a run's bytes include what its session and its answered create_model leave.",
               "Expected before the first run: 120 us a decision with 1,000 workers, because each one is looked at; 10 to "
               "15 ms for a sweep that looks at all runs; 2 to 3 KB a run."])
