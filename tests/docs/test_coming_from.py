"""Checks that every name in docs/coming-from.md that is said to be ours exists: metrics, spans, attributes, labels, keys,
variables and flags in the pages whose lists other tests compare with the code; functions and types in the headers;
files in the tree."""
import functools
import re
import shutil
import subprocess

import pytest
import yaml

from markdown_pages import CODE, ROOT, read

PAGE = ROOT / "docs/coming-from.md"
ALERTS = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())
# Not ours: what a cell says of OpenTelemetry, of HTTP or of a command.
FOREIGN = {"traceparent", "tracestate", "histogram_quantile", "docker", "compose", "up", "find_package", "http", "protobuf"}


def names_in(page, columns):
    """Returns the names in backticks in the tables of a page, in the columns with these numbers."""
    return {name for section in read(ROOT / page) for table in section.tables for row in table
            for number in columns if number < len(row) for name in CODE.findall(row[number])}


@functools.cache
def listed():
    """Returns names from the lists that tests compare with the code."""
    catalogue = names_in("docs/telemetry.md", range(4))
    keys = names_in("docs/configuration.md", range(3))
    variables = names_in("docs/request-tracing.md", [0])
    telemetry = {f"telemetry.{name}" for name in keys}
    return catalogue | keys | variables | telemetry | {f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT" for signal in (
        "TRACES", "METRICS", "LOGS") if "OTEL_EXPORTER_OTLP_ENDPOINT" in keys}


@functools.cache
def words_of_the_headers():
    files = [*(ROOT / "src/telemetry").rglob("*.h"), *(ROOT / "src/engine/sample").glob("*.h")]
    return set(re.findall(r"\w+", " ".join(file.read_text() for file in files)))


@functools.cache
def variables_of_the_code():
    text = " ".join(file.read_text() for file in (ROOT / "src").rglob("*.cc") if "tests" not in file.parts)
    return set(re.findall(r'"([A-Z][A-Z0-9_]+)"', text))


@functools.cache
def prometheus():
    text = (ROOT / "deploy/prometheus/prometheus.yml").read_text()
    return {line.strip(" -") for line in text.splitlines()}


def exists(name):
    if name in listed() or name in variables_of_the_code() or name in prometheus() or (ROOT / name).exists():
        return True
    if re.fullmatch(r"https?://localhost:\d+\S*|/\S*", name):
        return True  # checked by the tests of the settings
    if "/" in name and " " in name:  # a command
        return all((ROOT / word).exists() for word in name.split() if "/" in word)
    if name in {rule["alert"] for group in ALERTS["groups"] for rule in group["rules"]}:
        return True
    # A call, a type or a field; the names of a metric's series without their suffix.
    words = set(re.findall(r"[A-Za-z_]\w*", name)) - FOREIGN
    return not re.search(r"\w\.\w|--", name) and words <= words_of_the_headers() | {"true", "tuft", "telemetry", "name"}


def ours():
    """Yields each name in a column `here`, with its section and row."""
    for section in read(PAGE):
        for table in section.tables:
            head = table[0]
            for row in table[1:]:
                for title, cell in zip(head, row):
                    if title == "here":
                        for name in CODE.findall(cell):
                            yield section.title, row[0], name


def test_every_name_of_ours_exists():
    found = list(ours())
    assert len(found) > 120, "the tables have lost their columns 'here'"
    wrong = [f"{section}, row {row}: {name}" for section, row, name in found if not exists(name)]
    assert not wrong, "these names do not exist here:\n" + "\n".join(wrong)


def test_a_name_that_does_not_exist_is_found():
    for name in ("tuft.training.no_such", "telemetry.no_such", "TUFT_NO_SUCH", "--no-such", "trace_no_such(rid)",
                 "src/no/such.h", "TuftNoSuchAlert", "docker compose -f deploy/no/such.yaml up -d", "job_name: other"):
        assert not exists(name), name


def test_thresholds_are_those_of_the_alerts():
    section = next(one for one in read(PAGE) if one.title == "Thresholds")
    rules = [rule for group in ALERTS["groups"] for rule in group["rules"]]
    for row in section.tables[0][1:]:
        said = dict(re.findall(r"(warning|critical) above (\d+)", row[0]))
        alert = CODE.findall(row[1])[0]
        limits = {rule["labels"]["severity"]: float(rule["expr"].split(">")[-1]) for rule in rules if rule["alert"] == alert}
        # A rate is a share in the rules and a percentage on the page.
        scale = 100 if limits["critical"] < 1 else 1
        assert said == {severity: f"{limit * scale:.0f}" for severity, limit in limits.items()}, alert


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool comes with Debian's prometheus")
def test_prometheus_accepts_the_example(tmp_path):
    blocks = [block for section in read(PAGE) for block in section.blocks if block.startswith("```yaml")]
    assert len(blocks) == 1
    (tmp_path / "prometheus.yml").write_text(blocks[0].split("\n", 1)[1])
    run = subprocess.run(["promtool", "check", "config", tmp_path / "prometheus.yml"], capture_output=True, text=True,
                         timeout=30)
    assert run.returncode == 0, run.stdout + run.stderr
