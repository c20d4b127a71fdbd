"""The programs of deploy/grafana/compose.yaml find each other: hosts are services, and ports are those that they open."""

import pathlib
import re

import pytest
import yaml

GRAFANA = pathlib.Path(__file__).resolve().parents[2] / "deploy/grafana"
PROVISIONING = GRAFANA / "provisioning"


def read(path):
    return yaml.safe_load((GRAFANA / path).read_text())


SERVICES = read("compose.yaml")["services"]
SOURCES = {one["uid"]: one for one in read("provisioning/datasources/tuft.yaml")["datasources"]}


def opened():
    """Returns the ports of each service: from its configuration, or else the program's own ones."""
    receiver = read("tempo.yaml")["distributor"]["receivers"]["otlp"]["protocols"]
    return {
        "prometheus": {9090},
        "alertmanager": {9093},
        "tempo": {read("tempo.yaml")["server"]["http_listen_port"]}
        | {int(one["endpoint"].rpartition(":")[2]) for one in receiver.values()},
        "loki": {read("loki.yaml")["server"]["http_listen_port"]},
    }


@pytest.mark.parametrize(
    "path",
    ["collector.yaml", "tempo.yaml", "provisioning/datasources/tuft.yaml", "../prometheus/prometheus.yml"],
)
def test_every_address_is_one_that_a_service_has(path):
    text = re.sub(r"#.*", "", (GRAFANA / path).read_text())
    named = re.findall(r"\b(prometheus|alertmanager|tempo|loki):(\d+)", text)
    assert named
    for service, port in named:
        assert service in SERVICES and int(port) in opened()[service], f"{path}: {service}:{port}"


def test_the_data_sources_are_the_expected_ones():
    assert {uid: one["url"] for uid, one in SOURCES.items()} == {
        "prometheus": "http://prometheus:9090",
        "tempo": "http://tempo:3200",
        "loki": "http://loki:3100",
    }
    assert all(one["access"] == "proxy" and one["type"] == uid for uid, one in SOURCES.items())
    assert [uid for uid, one in SOURCES.items() if one.get("isDefault")] == ["prometheus"]


def test_grafana_reads_the_dashboards_where_compose_mounts_them():
    mounts = dict(volume.split(":")[:2] for volume in SERVICES["grafana"]["volumes"])
    (provider,) = read("provisioning/dashboards/tuft.yaml")["providers"]
    assert mounts["./generated"] == provider["options"]["path"]
    assert mounts["./provisioning"] == "/etc/grafana/provisioning"
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (GRAFANA / "generated" / pathlib.Path(home).relative_to(provider["options"]["path"])).exists()
