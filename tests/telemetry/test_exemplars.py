"""A slow bucket leads to its trace: exemplars of the real server, over OTLP and in a real Prometheus."""
import json
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

import workload
from test_metrics_page import OPENMETRICS, scrape
from tuft_server import wait_until

# Each is recorded after its span has ended, or on another thread than the request's.
MEASURED_IN_A_TRACE = ["http.server.request.duration", "tuft.futures.wait_time", "tuft.futures.execution_time",
                       "tuft.training.tokens_per_second", "tuft.sampling.duration", "gen_ai.server.request.duration",
                       "gen_ai.server.time_to_first_token", "ttft_milliseconds", "tuft.scheduler.step.duration"]


class Traced:
    def __init__(self, model_dir, home):
        self.server, self.receiver = workload.start_exporting(model_dir, home)
        self.home = home
        workload.train_and_sample(self.server.url)

    def exemplars(self, name):
        """Returns (trace id, span id) of the newest points of a metric over OTLP."""
        return {(exemplar.trace_id.hex(), exemplar.span_id.hex())
                for request in self.receiver.requests("metrics") for group in request.resource_metrics
                for scope in group.scope_metrics for metric in scope.metrics if metric.name == name
                for point in metric.histogram.data_points for exemplar in point.exemplars}

    def spans(self):
        return {(span.trace_id, span.span_id) for span in self.receiver.spans()}


@pytest.fixture(scope="module")
def traced(model_dir, tmp_path_factory):
    one = Traced(model_dir, tmp_path_factory.mktemp("home"))
    yield one
    one.server.stop()
    one.receiver.stop()


@pytest.mark.parametrize("name", MEASURED_IN_A_TRACE)
def test_over_otlp_each_leads_to_a_span_of_a_trace(name, traced):
    wait_until(lambda: traced.exemplars(name), 30, f"an exemplar of {name}")
    wait_until(lambda: traced.exemplars(name) <= traced.spans(), 30, "the spans of its exemplars")


def test_openmetrics_has_them_on_buckets_and_the_text_format_has_none(traced):
    found = {}
    for family in parse_openmetrics(scrape(traced.server.url, Accept=OPENMETRICS)[2]):
        for sample in family.samples:
            if sample.exemplar:
                assert sample.name.endswith("_bucket")
                found[sample.name] = sample
    assert "http_server_request_duration_seconds_bucket" in found
    assert "ttft_milliseconds_bucket" in found, "measured in the worker"
    for sample in found.values():
        assert sample.exemplar.labels.keys() == {"trace_id", "span_id"}
        assert sample.exemplar.value <= float(sample.labels["le"])
    assert " # {" not in scrape(traced.server.url)[2]


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is Debian's package of this name")
def test_a_real_prometheus_stores_them(traced):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = traced.home / "prometheus.yml"
    target = traced.server.url.removeprefix("http://")
    config.write_text(json.dumps({"scrape_configs": [{"job_name": "tuft", "scrape_interval": "1s",
                                                      "static_configs": [{"targets": [target]}]}]}))
    url = f"http://127.0.0.1:{port}/api/v1/"

    def get(path, **query):
        with urllib.request.urlopen(f"{url}{path}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
            return json.load(answer)["data"]

    def stored():
        try:
            return get("query_exemplars", query="http_server_request_duration_seconds_bucket", start="0", end="9999999999")
        except OSError:
            return []

    log = traced.home / "prometheus.log"
    with open(log, "w") as output:
        prometheus = subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={traced.home}/tsdb",
             f"--web.listen-address=127.0.0.1:{port}", "--enable-feature=exemplar-storage", "--log.level=warn"],
            stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_until(stored, 60, "Prometheus has exemplars")
        found = {(one["labels"]["trace_id"], one["labels"]["span_id"]) for series in stored() for one in series["exemplars"]}
        wait_until(lambda: found <= traced.spans(), 30, "the spans of its exemplars")
        assert "err=" not in log.read_text()
    finally:
        prometheus.terminate()
        prometheus.wait(timeout=30)
