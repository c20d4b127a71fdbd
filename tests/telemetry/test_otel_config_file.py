"""OTEL_CONFIG_FILE with the real programs: it decides for the server and its workers, and a mistake stops the start."""
import urllib.request

import pytest

import workload
from otlp_receiver import OtlpReceiver, attributes
from tuft_server import TuftServer, configuration, wait_until

FILE = """file_format: "1.1"
resource:
  attributes:
    - name: service.name
      value: ${NAME_OF_THE_SERVICE:-nobody}
    - {name: team, value: blue}
propagator:
  composite: [{tracecontext: }]
tracer_provider:
  processors:
    - batch:
        schedule_delay: 200
        exporter:
          otlp_grpc:
            endpoint: ${COLLECTOR}
            headers: [{name: authorization, value: "${TOKEN}"}]
meter_provider:
  readers:
    - periodic:
        interval: 500
        exporter:
          otlp_grpc:
            endpoint: ${COLLECTOR}
            default_histogram_aggregation: base2_exponential_bucket_histogram
"""


@pytest.fixture
def receiver():
    one = OtlpReceiver()
    yield one
    one.stop()


def test_named_then_both_processes_export_as_it_says(receiver, model_dir, tmp_path):
    file = tmp_path / "otel.yaml"
    file.write_text(FILE)
    environment = {"OTEL_CONFIG_FILE": str(file), "COLLECTOR": receiver.endpoint, "NAME_OF_THE_SERVICE": "theirs",
                   "TOKEN": "Bearer s3cret",
                   # Ignored beside the file.
                   "OTEL_SERVICE_NAME": "other", "OTEL_SDK_DISABLED": "true",
                   "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    config = configuration(model_dir, telemetry={"otlp_endpoint": "http://127.0.0.1:1", "metrics_endpoint": True})
    with TuftServer(tmp_path / "home", config, env=environment) as server:
        workload.train_and_sample(server.url)

        def services():
            return {(attributes(group.resource.attributes)["process.pid"], attributes(group.resource.attributes)["service.name"],
                     attributes(group.resource.attributes)["team"])
                    for request in receiver.requests("traces") for group in request.resource_spans}

        pids = [server.process.pid, server.worker_pids()[0]]
        wait_until(lambda: services() == {(pid, "theirs", "blue") for pid in pids}, 30, "the spans of both processes")

        def points(name):
            return [point for request in receiver.requests("metrics") for group in request.resource_metrics
                    for scope in group.scope_metrics for metric in scope.metrics if metric.name == name
                    for point in metric.exponential_histogram.data_points if point.count > 0]

        for name in ("http.server.request.duration", "ttft_milliseconds"):
            wait_until(lambda name=name: points(name), 30, f"exponential points of {name}")
            for point in points(name):
                assert point.count == point.zero_count + sum(point.positive.bucket_counts)
                assert len(point.positive.bucket_counts) <= 160
        assert not receiver.requests("logs"), "the file has no logger_provider"
        # The page has explicit buckets all the same.
        with urllib.request.urlopen(server.url + "/metrics", timeout=10) as page:
            assert b"http_server_request_duration_seconds_bucket" in page.read()
        assert "telemetry.otlp_endpoint: has no effect" in server.log
        assert "s3cret" not in server.log


@pytest.mark.parametrize("text, message", [
    ("file_format: \"1.1\"\ntracer_provider: {processors: [{batch: {exporter: {console: }}}], "
     "sampler: {jaeger_remote/development: {endpoint: x}}}\n",
     "otel.yaml:2: tracer_provider.sampler.jaeger_remote/development: is not supported"),
    (None, "OTEL_CONFIG_FILE: "),
])
def test_mistake_then_the_start_fails_with_its_path(text, message, model_dir, tmp_path):
    file = tmp_path / "otel.yaml"
    if text is not None:
        file.write_text(text)
    server = TuftServer(tmp_path / "home", configuration(model_dir), env={"OTEL_CONFIG_FILE": str(file)}).spawn()
    assert server.wait_exit() != 0
    assert message in server.log
