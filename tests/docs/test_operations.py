"""Checks that the metrics, spans, attributes, events, keys and files that docs/operations.md names exist."""
import re

import pytest

from markdown_pages import ROOT
from test_coming_from import listed, names_in

PAGE = ROOT / "docs/operations.md"
METRIC = re.compile(r"(?:tuft|hw|otel|gen_ai|http|system|process|target)_[a-z0-9_]+|[a-z_]+_(?:milliseconds|count|processed_total)")
DOTTED = re.compile(r"[a-z_0-9]+(?:\.[a-z_A-Z0-9]+)+")
SECTIONS = ("limits", "telemetry", "persistence", "tls", "console", "join")
# Of others: Prometheus' own series, and what libraries are called on the machine.
FOREIGN = {"target_info", "libamd_smi.so", "librocm_smi64.so"}


def series():
    lines = (ROOT / "tests/telemetry/golden_exposition_names.txt").read_text().splitlines()
    return {line.split()[2] for line in lines}


def exists(name):
    if name in FOREIGN:
        return True
    if METRIC.fullmatch(name):
        return name in series() or re.sub(r"_(bucket|sum|count|total)$", "", name) in series()
    section, key = name.split(".")[0], name.split(".")[-1]
    files = {path.name for path in (ROOT / "deploy/prometheus").iterdir()}
    return name in listed() or name in files or section in SECTIONS and key in names_in("docs/configuration.md", range(3))


def test_every_name_on_the_page_exists():
    text = re.sub(r"```.*?```", "", PAGE.read_text(), flags=re.DOTALL)
    names = {one for one in re.findall(r"`([^`\n]+)`", text) if METRIC.fullmatch(one) or DOTTED.fullmatch(one)}
    assert len(names) > 60
    wrong = sorted(name for name in names if not exists(name))
    assert not wrong, wrong


@pytest.mark.parametrize("name", ["tuft_no_such_total", "hf_model.no_such", "limits.no_such_max", "no_such_milliseconds"])
def test_a_name_that_does_not_exist_is_found(name):
    assert not exists(name)
