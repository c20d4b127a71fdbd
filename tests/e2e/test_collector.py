"""Configurations for the Collector, those of deploy/ and those that the documents print, in the real Collector; and what
it and Prometheus get from programs that are configured as the documents say."""

import os
import re
import subprocess

import pytest
import yaml

import otlp_json
import tuft_server
from backends import Collector, Prometheus, program
from raw_client import RawClient
from tuft_server import ALICE, MODEL, TuftServer, configuration, wait_until
from world import DEPLOY, ROOT, prometheus_config

EXAMPLE = tuft_server.BIN.parent / "examples/metrics_example"


def validate(config):
    checked = subprocess.run([program("collector"), "validate", "--config", config], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("config", ["jaeger/collector.yaml", "grafana/collector.yaml"])
def test_the_collector_takes_the_configurations_of_deploy(config):
    validate(DEPLOY / config)


def blocks_of_the_documents():
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "deploy").rglob("*.md"))]:
        for number, block in enumerate(re.findall(r"^ *```yaml\n(.*?)^ *```", path.read_text(), re.DOTALL | re.MULTILINE)):
            if re.search(r"^(receivers|exporters|processors|service):", block, re.MULTILINE):
                yield pytest.param(block, id=f"{path.relative_to(ROOT)} {number}")


def test_the_documents_print_a_configuration_for_the_collector():
    assert list(blocks_of_the_documents())


@pytest.mark.parametrize("block", blocks_of_the_documents())
def test_the_collector_takes_the_configurations_that_the_documents_print(block, tmp_path):
    path = tmp_path / "collector.yaml"
    path.write_text(block)
    validate(path)
    pipelines = yaml.safe_load(block)["service"]["pipelines"]
    assert {"traces", "metrics", "logs"} <= pipelines.keys()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    home = tmp_path_factory.mktemp("prometheus")
    running = Prometheus(home, prometheus_config(home))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def collector(tmp_path_factory, prometheus):
    """The Collector of deploy/grafana in front of Prometheus. Traces go to a file; Tempo and Loki are not there."""
    home = tmp_path_factory.mktemp("collector")
    traces = {
        "exporters": {"file": {"path": str(home / "traces.json")}},
        "service": {"pipelines": {"traces": {"exporters": ["file"]}}},
    }
    (home / "traces.yaml").write_text(yaml.safe_dump(traces))
    running = Collector(
        home, [DEPLOY / "grafana/collector.yaml", home / "traces.yaml"], {"PROMETHEUS": prometheus.url}
    )
    yield running
    running.stop()


def value(prometheus, query):
    found = prometheus.get("query", query=query)["result"]
    return float(found[0]["value"][1]) if found else None


def run_example(**variables):
    environment = {key: text for key, text in os.environ.items() if not key.startswith(("OTEL_", "TUFT_"))}
    done = subprocess.run([EXAMPLE], env={**environment, **variables}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done


def names_of(collector, service):
    """Returns the names of the spans that a service has sent."""
    spans = otlp_json.spans(collector.written("traces.json"))
    return {span.name for span in spans if span.resource["service.name"] == service}


def check_example(prometheus, collector, job):
    operations = f'example_operations_total{{job="{job}", operation_type="custom"}}'
    wait_until(lambda: value(prometheus, operations), 20, "Prometheus has the metrics")
    assert value(prometheus, operations) == 10
    assert value(prometheus, f'custom_operation_duration_milliseconds_count{{job="{job}"}}') == 10
    assert value(prometheus, f'custom_operation_duration_milliseconds_bucket{{job="{job}", le="+Inf"}}') == 10
    assert value(prometheus, f'example_items_active{{job="{job}"}}') == 0
    expected = {"process_data", "custom_operation"}
    wait_until(lambda: expected <= names_of(collector, job), 20, "the Collector has the traces")


def test_the_metrics_example_sends_to_prometheus_and_to_a_receiver_of_traces(prometheus, collector):
    run_example(
        OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=prometheus.otlp + "/v1/metrics",
        OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"http://127.0.0.1:{collector.http}/v1/traces",
        OTEL_SERVICE_NAME="direct",
    )
    check_example(prometheus, collector, "direct")


def test_the_collector_of_the_grafana_stack_forwards_metrics_to_prometheus(prometheus, collector):
    run_example(
        OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=f"http://127.0.0.1:{collector.http}/v1/metrics",
        OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"http://127.0.0.1:{collector.http}/v1/traces",
        OTEL_SERVICE_NAME="forwarded",
    )
    check_example(prometheus, collector, "forwarded")


def test_a_server_with_the_two_endpoint_variables_pushes_to_prometheus(prometheus, collector, tmp_path):
    """The variables of Transformers' guide to metrics; the configuration says only that telemetry is on."""
    model = tuft_server.init_model(tmp_path / "model", "--family", "qwen3", "--size", "tiny", "--seed", "7")
    server = TuftServer(
        tmp_path / "server",
        configuration(model, telemetry={"enabled": True, "service_name": "variables", "logs": {"enabled": False}}),
        env={
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": prometheus.otlp + "/v1/metrics",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://127.0.0.1:{collector.http}/v1/traces",
            "OTEL_METRICS_EXPORT_INTERVAL": "1000",
        },
    ).start()
    try:
        raw = RawClient(server.url, ALICE)
        sampler = raw.sampler(base_model=MODEL).json["sampling_session_id"]
        assert "error" not in raw.result(raw.sample(sampler, 0)).json
        query = f'ttft_milliseconds_count{{job="variables", worker="{MODEL}"}}'
        wait_until(lambda: value(prometheus, query), 30, "Prometheus has the worker's metrics")
        assert value(prometheus, 'count(tuft_build_info{job="variables", worker=""})') == 1
    finally:
        status, _ = server.stop(20)
    assert status == 0, server.log
    for signal in ("METRICS", "TRACES"):
        assert f"(by the address in OTEL_EXPORTER_OTLP_{signal}_ENDPOINT)" in server.log
    wait_until(lambda: "hf_model.sample" in names_of(collector, "variables"), 20, "the Collector has the traces")
