"""Compares two builds: runs a suite on both in turns, and gives the ratio of each of its measurements."""
import copy
import importlib

import measure


def medians(data, label=()):
    """Returns the median of each measurement in the data of a suite, by the names that lead to it."""
    if isinstance(data, dict) and "median" in data:
        return {label: data["median"]}
    found = {}
    if isinstance(data, dict):
        names = tuple(str(data[key]) for key in ("kind", "case", "dtype", "server") if key in data)
        for key, value in data.items():
            if key != "raw":
                found |= medians(value, (*label, *names, key))
    elif isinstance(data, (list, tuple)):
        for value in data:
            found |= medians(value, label)
    return found


def run(options, suite):
    """Runs `suite` on options.before and options.programs, options.rounds times each: A B, B A, A B, ..."""
    module = importlib.import_module(f"suites.{suite}")
    sides = {"before": options.before, "after": options.programs}
    taken = {side: [] for side in sides}
    for turn in range(options.rounds):
        for side in sides if turn % 2 == 0 else reversed(sides):
            measure.progress.line(f"round {turn + 1} of {options.rounds}: {side}")
            chosen = copy.copy(options)
            chosen.programs = sides[side]
            taken[side].append(medians(module.run(chosen)["data"]))
    rows, data = [], []
    for label in taken["after"][0]:
        series = {side: [found[label] for found in taken[side] if found.get(label)] for side in sides}
        if min(map(len, series.values())) < options.rounds:
            continue  # measured by one side only, or zero
        ratio = measure.paired_ratio(series["after"], series["before"])
        spreads = {side: measure.spread(values) for side, values in series.items()}
        name = ", ".join(part for part in label if part != "measurements")
        rows.append([name, spreads["before"], spreads["after"], ratio])
        data.append(dict(case=name, **spreads, after_to_before=ratio))
    return dict(
        data=dict(measurements=data),
        tables=[dict(title="Two builds in turns: medians of each round", columns=["measurement", "before", "after",
                                                                               "after / before"], rows=rows)],
        notes=[f"before: commit {options.before_commit or 'not known'}; {options.rounds} rounds, in each both builds, "
               f"{options.repetitions} repetitions of each case."])
