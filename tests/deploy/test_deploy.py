"""Checks the files of deploy/ against each other and the existing metrics, and with promtool if installed."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
DASHBOARDS = sorted((DEPLOY / "grafana/generated").rglob("*.json"))
OPERATIONS = (ROOT / "docs/operations.md").read_text()
# Metrics of Prometheus itself.
OWN_METRICS = {"up": {"job", "instance"}, "scrape_duration_seconds": {"job", "instance"}}
OWN_LABELS = {"job", "instance", "worker", "le"}


def known_metrics():
    """Returns each name that a query may use, with its labels, from the list that the code generates."""
    found = dict(OWN_METRICS)
    for line in (ROOT / "tests/telemetry/golden_exposition_names.txt").read_text().splitlines():
        _, kind, name, *labels = line.split()
        names = [name + suffix for suffix in ("_bucket", "_sum", "_count")] if kind == "histogram" else [name]
        found |= {one: {*labels, *OWN_LABELS} for one in names}
    return found


KNOWN = known_metrics()


def selectors(query):
    """Returns (metric, matchers) for each selector of a query."""
    return re.findall(r"\b([a-z_:][a-z0-9_:]*)\s*\{([^}]*)\}", query)


def names(query):
    bare = re.sub(r"\{[^}]*\}|\[[^]]*\]|\"[^\"]*\"", "", query)
    bare = re.sub(r"\b(by|without|on|ignoring|group_left)\s*\([^)]*\)", "", bare)
    return {word for word in re.findall(r"\b[a-z_][a-z0-9_]*\b(?!\s*\()", bare)} - {
        "or",
        "and",
        "unless",
        "by",
        "without",
        "on",
        "ignoring",
        "group_left",
        "bool",
        "offset",
        "m",
        "s",
        "h",
        "e",
    }


def check_query(query):
    for name in names(query):
        assert name in KNOWN, f"no metric {name}: {query}"
    for name, matchers in selectors(query):
        for label in re.findall(r"([a-z_0-9]+)\s*[=!]", matchers):
            assert label in KNOWN[name], f"{name} has no label {label}: {query}"
    grouping = {label.strip() for group in re.findall(r"\bby\s*\(([^)]*)\)", query) for label in group.split(",")}
    of_any = set().union(*(KNOWN[name] for name in names(query)))
    assert grouping - {""} <= of_any, query


def rules():
    written = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())
    return [rule for group in written["groups"] for rule in group["rules"]]


def test_the_dashboards_belong_to_their_source():
    checked = subprocess.run(
        [sys.executable, DEPLOY / "grafana/dashboards.py", "--check"], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr


def test_dashboards_do_not_overwrite_each_other():
    uids = [json.loads(path.read_text())["uid"] for path in DASHBOARDS]
    assert len(uids) == len(set(uids)) == 7


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_complete(path):
    board = json.loads(path.read_text())
    variables = {one["name"] for one in board["templating"]["list"]}
    assert {"base_model", "instance", "datasource"} <= variables
    taken = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not cells & taken, f"{panel['title']} overlaps"
        taken |= cells
        if panel["type"] == "row":
            continue
        assert panel["title"] and panel["description"] and panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        for target in panel["targets"]:
            if panel["datasource"]["type"] == "tempo":  # tests/e2e/test_stack.py asks Tempo
                assert set(re.findall(r"\$(\w+)", target["query"])) <= variables
                continue
            assert set(re.findall(r"\$(\w+)", target["expr"])) <= variables | {"__rate_interval"}
            check_query(target["expr"])


def test_alert_rules_use_metrics_that_exist():
    for rule in rules():
        check_query(rule["expr"])


def test_every_alert_has_a_runbook_entry_and_no_entry_is_left_over():
    entries = set(re.findall(r"^### (Tuft\w+)", OPERATIONS, re.MULTILINE))
    assert entries == {rule["alert"] for rule in rules()}
    for rule in rules():
        assert rule["annotations"]["runbook_url"] == f"docs/operations.md#{rule['alert'].lower()}"
        assert {"summary", "description"} <= rule["annotations"].keys()


def test_every_alert_is_tested():
    tested = set(
        re.findall(r'alertname="(\w+)", severity="(\w+)"', (DEPLOY / "prometheus/alerts_test.yml").read_text())
    )
    assert tested == {(rule["alert"], rule["labels"]["severity"]) for rule in rules()}


def promtool(*arguments):
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed (Debian: prometheus)")
    checked = subprocess.run(
        ["promtool", *map(str, arguments)], capture_output=True, text=True, cwd=DEPLOY / "prometheus"
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_alert_rules_fire_when_they_should():
    promtool("test", "rules", "alerts_test.yml")


def test_the_configuration_of_prometheus_is_valid(tmp_path):
    text = (DEPLOY / "prometheus/prometheus.yml").read_text()
    (tmp_path / "token").write_text("secret")
    (tmp_path / "alerts.yml").write_text((DEPLOY / "prometheus/alerts.yml").read_text())
    (tmp_path / "prometheus.yml").write_text(text.replace("/run/secrets/metrics_token", str(tmp_path / "token")))
    promtool("check", "config", tmp_path / "prometheus.yml")


def test_the_example_of_a_rule_for_labels_is_valid(tmp_path):
    text = (DEPLOY / "prometheus/prometheus.yml").read_text().replace("    # relabel", "    relabel")
    text = re.sub(r"^    #(   .*)$", r"    \1", text, flags=re.MULTILINE)
    config = yaml.safe_load(text)
    assert config["scrape_configs"][0]["relabel_configs"][0]["target_label"] == "instance"
    config["rule_files"] = []
    del config["scrape_configs"][0]["authorization"]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    promtool("check", "config", tmp_path / "prometheus.yml")


def test_compose_files_pin_their_images_and_mount_what_there_is():
    for path in DEPLOY.glob("*/compose.yaml"):
        for name, service in yaml.safe_load(path.read_text())["services"].items():
            assert re.search(r":v?\d+\.\d+\.\d+$", service["image"]), f"{path}: {name}"
            for volume in service.get("volumes", []):
                source = volume.split(":")[0]
                assert not source.startswith(".") or (path.parent / source).exists(), f"{path}: {volume}"
            for port in service.get("ports", []):
                assert port.startswith("127.0.0.1:"), f"{path}: {name} would be open to the network"


def test_what_is_deployed_is_what_was_tested():
    for package, image, module in (
        ("collector", "opentelemetry-collector-contrib", "go.opentelemetry.io/collector/otelcol"),
        ("jaeger", "jaegertracing/all-in-one", "github.com/jaegertracing/jaeger"),
    ):
        pinned = re.search(rf"{re.escape(module)} v(\S+)", (ROOT / f"tests/e2e/{package}/go.mod").read_text()).group(1)
        for path in DEPLOY.glob("*/compose.yaml"):
            assert all(version == pinned for version in re.findall(rf"{image}:(\S+)", path.read_text())), path


def test_the_prometheus_of_compose_is_the_one_that_was_tested():
    module = re.search(r"prometheus/prometheus v0\.(\d)(\d\d)\.(\d+)", (ROOT / "tests/e2e/prometheus/go.mod").read_text())
    image = ".".join(str(int(part)) for part in module.groups())  # module v0.305.0 is Prometheus 3.5.0
    assert f"prom/prometheus:v{image}" in (DEPLOY / "grafana/compose.yaml").read_text()


def test_data_sources_refer_to_each_other():
    sources = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/tuft.yaml").read_text())["datasources"]
    uids = {one["uid"] for one in sources}
    assert uids == {"prometheus", "tempo", "loki"}
    assert set(re.findall(r"'datasourceUid': '(\w+)'", str(sources))) <= uids
    for tempo in (one for one in sources if one["uid"] == "tempo"):
        for query in tempo["jsonData"]["tracesToMetrics"]["queries"]:
            check_query(query["query"].replace("{$$__tags}", "").replace("$$__rate_interval", "5m"))
