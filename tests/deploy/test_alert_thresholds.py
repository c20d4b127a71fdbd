"""Changes each number of deploy/prometheus/alerts.yml a little and checks that promtool's tests of the thresholds fail.

promtool reports each rule whose alerts differ from what alerts_thresholds_test.yml expects. Therefore one run of it
tests one change of every rule."""

import pathlib
import re
import shutil
import subprocess

import pytest
import yaml

PROMETHEUS = pathlib.Path(__file__).resolve().parents[2] / "deploy/prometheus"
TESTS = "alerts_thresholds_test.yml"
# A number of an expression, not in a string, a range or a name. Only numbers have the group.
NUMBER = re.compile(r'"[^"]*"|\[[^]]*\]|offset \w+|[a-z_]\w*|(\d+(?:\.\d+)?)')
# Restarts are whole, so a threshold between two numbers of restarts may move between them.
WHOLE = {"TuftWorkerRestarting"}
# No count is negative, and no event that comes once is 1.5 events.
INSTEAD_OF_ZERO = {-1: "-0.001", 1: "1.5"}

pytestmark = pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is in Debian's package prometheus")


def changed_number(text, alert, direction):
    value = float(text)
    if value == 0:
        return INSTEAD_OF_ZERO[direction]
    return f"{value + direction:g}" if alert in WHOLE else f"{value * (1 + direction / 100):.6g}"


def changes(rule, direction):
    """Returns what each number of a rule and its `for` become: one rule for each change."""
    found = []
    for match in NUMBER.finditer(rule["expr"]):
        if match[1]:
            number = changed_number(match[1], rule["alert"], direction)
            found.append({**rule, "expr": rule["expr"][: match.start()] + number + rule["expr"][match.end() :]})
    if "for" in rule:
        found.append({**rule, "for": f"{int(rule['for'].removesuffix('m')) + direction}m"})
    return found


def key(rule):
    return rule["alert"], rule["labels"]["severity"]


def alerts(text):
    """Returns the alerts that promtool names in a line of its report."""
    found = [dict(re.findall(r'(\w+)="([^"]*)"', labels)) for labels in re.findall(r"{([^}]*)}", text)]
    return {(one["alertname"], one["severity"], one.get("instance")) for one in found}


def failing(rules, home):
    """Returns the rules whose alerts are not the expected ones."""
    (home / "alerts.yml").write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))
    (home / TESTS).write_text((PROMETHEUS / TESTS).read_text())
    ran = subprocess.run(["promtool", "test", "rules", TESTS], cwd=home, capture_output=True, text=True)
    report = ran.stdout + ran.stderr
    assert "SUCCESS" in report or "FAILED" in report, report
    differing = set()
    for expected, got in re.findall(r"^ *exp: *(.*)\n *got: *(.*)$", report, re.MULTILINE):
        differing |= {(name, severity) for name, severity, _ in alerts(expected) ^ alerts(got)}
    return differing


def written():
    groups = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_each_rule_fires_just_above_its_threshold_and_not_just_below(tmp_path):
    assert not failing(written(), tmp_path)


def test_the_thresholds_of_every_rule_are_tested():
    text = (PROMETHEUS / TESTS).read_text()
    assert {key(rule) for rule in written()} == set(re.findall(r'alertname="(\w+)", severity="(\w+)"', text))


@pytest.mark.parametrize("direction", [-1, 1], ids=["lower", "higher"])
def test_a_threshold_that_is_changed_a_little_fails_its_test(direction, tmp_path):
    rules = written()
    rounds = max(len(changes(rule, direction)) for rule in rules)
    survivors = []
    for turn in range(rounds):
        mutants = {key(rule): changes(rule, direction)[turn : turn + 1] for rule in rules}
        caught = failing([(mutants[key(rule)] or [rule])[0] for rule in rules], tmp_path)
        survivors += [mutant for name, found in mutants.items() if name not in caught for mutant in found]
    assert not survivors, [(rule["alert"], rule["expr"], rule.get("for")) for rule in survivors]


def test_the_table_of_normal_ranges_has_the_thresholds_of_the_rules():
    text = (PROMETHEUS.parents[1] / "docs/operations.md").read_text()
    rows = re.findall(r"^\| .* \| .* \| (\d+) [^|]*\| (\d+) [^|]*\| `(\w+)` \|$", text, re.MULTILINE)
    assert len(rows) == 4
    for *thresholds, metric in rows:
        for severity, threshold in zip(("warning", "critical"), thresholds):
            expressions = [
                one["expr"].strip() for one in written() if metric in one["expr"] and key(one)[1] == severity
            ]
            number = re.search(r"> ([\d.]+)$", *expressions)[1]
            assert float(threshold) in (float(number), 100 * float(number)), metric
