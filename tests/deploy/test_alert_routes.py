"""Checks the routes of deploy/prometheus/alertmanager.yml with amtool, if it is installed."""

import pathlib
import shutil
import subprocess

import pytest
import yaml

PROMETHEUS = pathlib.Path(__file__).resolve().parents[2] / "deploy/prometheus"
RECEIVERS = {"critical": "on-call", "warning": "team"}

pytestmark = pytest.mark.skipif(not shutil.which("amtool"), reason="amtool: Debian's package prometheus-alertmanager")


def amtool(*arguments):
    ran = subprocess.run(["amtool", *arguments], cwd=PROMETHEUS, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_every_alert_has_the_route_of_its_severity():
    groups = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        labels = [f"alertname={rule['alert']}", f"severity={rule['labels']['severity']}", "instance=a:1"]
        route = amtool("config", "routes", "test", "--config.file=alertmanager.yml", *labels)
        assert route == RECEIVERS[rule["labels"]["severity"]], rule["alert"]
