"""Tests what the real server reports of GPUs, and the dashboards' panels of them, in a real Prometheus.

The libraries of the GPU vendors are the fake ones of src/telemetry/host/tests: two GPUs of NVIDIA's and two of AMD's."""
import json
import os
import pathlib
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tuft_server import BIN, MODEL, TuftServer, configuration, wait_until

GENERATED = pathlib.Path(__file__).resolve().parents[2] / "deploy/grafana/generated"
FAKES = [BIN.resolve().parent / "tests/fake_gpus" / name
         for name in ("libnvidia-ml.so.1", "libamd_smi.so.26", "librocm-core.so.1")]
# A value for each GPU of a panel, by the metric that it shows. The second GPU of each vendor reports less.
WANTED = {
    "tuft_resource_gpu_utilization_percent": {"0": 75, "2": 40},
    "tuft_resource_gpu_memory_used_bytes": {"0": 2e9, "1": 0, "2": 16e9, "3": 1e9},
    "tuft_resource_gpu_memory_total_bytes": {"0": 8e9, "1": 8e9, "2": 64e9, "3": 64e9},
    "hw_power_watts": {"GPU-one": 250.5, "ffff-one": 300, "AMD-3": 90},
    "hw_temperature_celsius": {"GPU-one": 61, "ffff-one": 55, "AMD-3": 71},
}

pytestmark = pytest.mark.skipif("TUFT_FAULT_IO" not in os.environ,
                                reason="a sanitizer's runtime does not go together with LD_PRELOAD")


@pytest.fixture(scope="module")
def server(model_dir, tmp_path_factory):
    environment = {"LD_PRELOAD": ":".join(map(str, FAKES))}
    with TuftServer(tmp_path_factory.mktemp("home"), configuration(model_dir), env=environment) as one:
        yield one


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def series(server, name):
    """Returns the labels and values of the metric's series at /metrics."""
    return [(sample.labels, sample.value) for family in text_string_to_metric_families(get(server.url + "/metrics"))
            for sample in family.samples if sample.name == name]


def test_server_and_worker_report_every_gpu_under_its_number(server):
    for metric, wanted in WANTED.items():
        for worker in (None, MODEL):
            found = {labels.get("gpu_id", labels.get("hw_id")): value for labels, value in series(server, metric)
                     if labels.get("worker") == worker}
            assert found == wanted, f"{metric} of {worker}"


def test_the_gpus_and_the_build_are_described(server):
    gpus = {labels["gpu_id"]: labels for labels, value in series(server, "tuft_resource_gpu_info")
            if "worker" not in labels and value == 1}
    assert {key: gpu["hw_name"] for key, gpu in gpus.items()} == {
        "0": "Fake H1", "1": "Fake K1", "2": "Fake M1", "3": "Fake M2"}
    assert gpus["0"] == {"gpu_id": "0", "hw_id": "GPU-one", "hw_name": "Fake H1", "hw_vendor": "NVIDIA",
                         "hw_driver_version": "999.1", "runtime": "CUDA 12.8"}
    assert gpus["3"] == {"gpu_id": "3", "hw_id": "AMD-3", "hw_name": "Fake M2", "hw_vendor": "AMD",
                         "hw_driver_version": "6.12.12", "runtime": "ROCm 6.4.1"}
    (build,) = [labels for labels, _ in series(server, "tuft_build_info") if "worker" not in labels]
    assert build["version"] and build["compiler_version"]
    ((resource, _),) = series(server, "target_info")
    assert resource["host_arch"] in ("amd64", "arm64")
    names = [line.partition(": ")[2] for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    assert resource.get("host_cpu_model_name") == (names[0] if names else None)
    assert "telemetry.no_gpu_metrics" not in server.log


def gpu_queries():
    """Returns the queries of the panels that show one of the metrics, as [(title, metric, query)]."""
    return [(panel["title"], metric, target["expr"]) for path in sorted(GENERATED.glob("*.json"))
            for panel in json.loads(path.read_text())["panels"] for target in panel.get("targets", [])
            for metric in WANTED if metric in target["expr"]]


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="Debian's package prometheus is not installed")
def test_the_panels_show_every_gpu(server, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    target = urllib.parse.urlsplit(server.url).netloc
    (tmp_path / "prometheus.yml").write_text(json.dumps({"scrape_configs": [
        {"job_name": "tuft", "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}]}))
    with open(tmp_path / "log", "wb") as log:
        prometheus = subprocess.Popen(
            ["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
             f"--web.listen-address={address}"], stdout=log, stderr=log)

    def ask(query):
        try:
            answer = json.loads(get(f"http://{address}/api/v1/query?" + urllib.parse.urlencode({"query": query})))
        except OSError:
            return []
        return answer["data"]["result"]

    try:
        wait_until(lambda: ask("tuft_resource_gpu_info"), 60, "Prometheus scrapes the server")
        queries = gpu_queries()
        assert {metric for _, metric, _ in queries} == set(WANTED)
        for title, metric, query in queries:
            found = {one["metric"].get("gpu_id", one["metric"].get("hw_id")): float(one["value"][1])
                     for one in ask(query.replace("$instance", ".*"))}
            assert found == WANTED[metric], f"{title}: {query}"
    finally:
        prometheus.kill()
        prometheus.wait()
