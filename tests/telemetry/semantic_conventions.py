#!/usr/bin/env python3
"""Compares the names that tuft records with OpenTelemetry's semantic conventions.

  semantic_conventions.py --check          compares docs/telemetry.md, which the catalogue tests compare with the code,
                                           with the table semantic_conventions.txt
  semantic_conventions.py --update CLONE   writes the table from a clone of open-telemetry/semantic-conventions at its
                                           newest tag; needs PyYAML

The table has one line for each name that tuft uses in a namespace of the conventions."""
import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/telemetry.md"
TABLE = ROOT / "tests/telemetry/semantic_conventions.txt"
NAMESPACES = ("client", "code", "cpu", "db", "disk", "error", "exception", "gen_ai", "http", "hw", "network", "otel",
              "process", "server", "system", "url", "user_agent")
# Names that the conventions do not have or no longer have. docs/telemetry.md says why each is there.
OURS = {"db.operation", "db.system", "gen_ai.latency.e2e", "gen_ai.latency.time_in_model_decode",
        "gen_ai.latency.time_in_model_prefill", "gen_ai.latency.time_in_queue", "gen_ai.latency.time_to_first_token"}
INSTRUMENTS = {"Counter": "counter", "ObservableCounter": "counter", "Histogram": "histogram", "Gauge": "gauge",
               "ObservableGauge": "gauge", "UpDownCounter": "updowncounter"}


def in_a_namespace(name):
    return name.split(".")[0] in NAMESPACES and "." in name


def rows(section):
    for line in section.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
        if len(cells) >= 3 and cells[0].startswith("`"):
            yield cells


def used():
    """Returns {attribute} and {metric: (instrument, unit)} of the catalogue."""
    page = PAGE.read_text()
    catalogue = page[page.index("## Catalogue"):]
    metrics_text = catalogue[catalogue.index("### Metrics"):catalogue.index("### Spans")]
    attributes, metrics = set(), {}
    for cells in rows(metrics_text):
        if len(cells) < 6:
            continue
        name = re.match(r"`([^`]+)`", cells[0])[1]
        metrics[name] = (INSTRUMENTS[cells[1].split(",")[0]], cells[2])
        attributes.update(re.findall(r"`([^`]+)`", cells[3]))
    for cells in rows(catalogue[catalogue.index("### Attributes"):]):
        attributes.add(cells[0].strip("`"))
    return ({name for name in attributes if in_a_namespace(name)},
            {name: value for name, value in metrics.items() if in_a_namespace(name)})


def table():
    """Returns the version, {attribute: stability} and {metric: (stability, instrument, unit)}."""
    version, attributes, metrics = "", {}, {}
    for line in TABLE.read_text().splitlines():
        words = line.split()
        if line.startswith("# version"):
            version = words[2]
        elif words and words[0] == "attribute":
            attributes[words[1]] = words[2]
        elif words and words[0] == "metric":
            metrics[words[1]] = tuple(words[2:])
    return version, attributes, metrics


def problems():
    version, attributes, metrics = table()
    our_attributes, our_metrics = used()
    page = PAGE.read_text()
    if f"semantic conventions {version}" not in page:
        yield f"docs/telemetry.md does not say 'semantic conventions {version}'"
    for name in sorted(our_attributes - attributes.keys() - OURS):
        yield f"{name} is no attribute of the semantic conventions {version}"
    for name in sorted(attributes.keys() - our_attributes):
        yield f"{name} is in {TABLE.name}, but nothing records it"
    for name in sorted(metrics.keys() ^ our_metrics.keys()):
        yield f"{name} is a metric of only one of the two, {TABLE.name} and docs/telemetry.md"
    # Only a stable convention binds. The page lists the differences from others.
    differences = page[page.index("## Semantic conventions"):page.index("## Developer guide")]
    for name in sorted(metrics.keys() & our_metrics.keys()):
        stability, instrument, unit = metrics[name]
        if our_metrics[name] == (instrument, unit):
            continue
        if stability == "stable" or f"`{name}`" not in differences:
            yield f"{name} is {our_metrics[name]}, but {(instrument, unit)} in the semantic conventions ({stability})"
    for name in sorted(OURS):
        if f"`{name}`" not in differences and f"`{name.rpartition('.')[0]}.*`" not in differences:
            yield f"docs/telemetry.md does not say why there is {name}"


def update(clone):
    import yaml

    def git(*words):
        return subprocess.run(["git", "-C", clone, *words], capture_output=True, text=True, check=True).stdout

    version = git("tag", "--sort=-version:refname").split()[0]
    attributes, metrics = {}, {}
    for path in git("ls-tree", "-r", "--name-only", version, "model").splitlines():
        if not path.endswith((".yaml", ".yml")):
            continue
        model = yaml.safe_load(git("show", f"{version}:{path}")) or {}
        for group in model.get("groups") or []:
            if group.get("type") == "metric":
                metrics[group["metric_name"]] = group
            for attribute in group.get("attributes") or []:
                attributes.setdefault(attribute.get("id"), attribute)
        for attribute in model.get("attributes") or []:
            attributes[attribute.get("key")] = attribute
        for metric in model.get("metrics") or []:
            metrics[metric["name"]] = metric
    our_attributes, our_metrics = used()
    lines = ["# The names of OpenTelemetry's semantic conventions that tuft records, made by semantic_conventions.py.",
             f"# version {version.removeprefix('v')}"]
    lines += [f"attribute {name} {attributes[name]['stability']}" for name in sorted(our_attributes - OURS)]
    lines += [f"metric {name} {metrics[name]['stability']} {metrics[name]['instrument']} {metrics[name]['unit']}"
              for name in sorted(our_metrics)]
    TABLE.write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true")
    what.add_argument("--update", metavar="CLONE")
    options = parser.parse_args()
    if options.update:
        update(options.update)
    found = list(problems())
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
