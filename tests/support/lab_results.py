"""What the lab's table says about a test: a line of JSON in the file $TUFT_LAB_RESULTS. Without that variable nothing is
written."""
import json
import os
import statistics


def note(part, tried, times, result):
    """`part`: a word of `./dev lab`. `tried`: what was done, `times` times. `result`: what happened."""
    path = os.environ.get("TUFT_LAB_RESULTS")
    if path:
        with open(path, "a") as file:
            file.write(json.dumps({"part": part, "tried": tried, "times": times, "result": result}) + "\n")


def percentile(values, share):
    return statistics.quantiles(values, n=1000, method="inclusive")[round(share * 1000) - 1] if len(values) > 1 else values[0]


def shown(seconds):
    return f"p50 {percentile(seconds, 0.5) * 1e3:.0f} ms, p99 {percentile(seconds, 0.99) * 1e3:.0f} ms"
