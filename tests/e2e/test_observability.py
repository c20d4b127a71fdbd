"""Runs tuft against the real Collector, Jaeger and Prometheus, under the demo's load: `./dev e2e observability`.

Two servers run one after the other: the first exports OTLP over gRPC, the second over HTTP. The first gets every kind
of work, loses a worker and is restarted, and is scraped by Prometheus with the configuration and the rules of
deploy/."""

import json
import math
import pathlib
import shutil
import subprocess
import time

import pytest
import yaml

import load
import otlp_json
import tuft_server
from backends import BackEnd, Collector, Jaeger, Prometheus, free_ports, program
from tuft_server import TuftServer, configuration, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
TOKEN = "e2e-metrics-token"
SERVICES = {"grpc": "tuft-grpc", "http/protobuf": "tuft-http"}
DEMO_STEPS = 12
SETTLE_SECONDS = 60
SERVER = 2

# Queries whose result may be empty here: a metric in the query, and the reason.
MAY_BE_EMPTY = {
    "decode_prefill_ratio": "needs a scrape during a step with prefill",
    "tuft_resource_gpu": "needs a GPU",
    "hw_power_watts": "needs a GPU",
    "hw_temperature_celsius": "needs a GPU",
    "tuft_checkpoint_failures_total": "needs a disk that fails",
    "tuft_futures_evicted_total": "needs results over the memory limit",
    "tuft_futures_try_again_total": "needs an operation that takes longer than a poll",
    "tuft_http_rejected_total": "needs an overloaded server",
    "tuft_scheduler_admission_rejections_total": "needs a full engine",
    "tuft_sampling_nonfinite_logits_total": "needs a broken model",
    "tuft_store_errors_total": "needs a store that fails",
    "tuft_store_slow_ops_total": "needs a slow store",
    "tuft_telemetry_dropped_total": "needs loss",
    "tuft_telemetry_log_suppressed_total": "needs a flood of logs",
    "tuft_telemetry_nonfinite_total": "needs a defect",
    "tuft_telemetry_rejected_total": "needs a collector that refuses records",
    "tuft_telemetry_retries_total": "needs a collector that fails",
    "tuft_telemetry_sampled_out_total": "needs a sampling ratio below 1",
    "tuft_telemetry_series_overflowed_total": "needs a defect",
    "tuft_training_nonfinite_total": "needs a run that diverges",
}


def redis(home):
    (port,) = free_ports(1)
    server = BackEnd("redis", home, ["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", ""])
    wait_until(
        lambda: subprocess.run(["redis-cli", "-p", str(port), "ping"], capture_output=True).returncode == 0,
        20,
        "Redis answers",
    )
    return server, f"redis://127.0.0.1:{port}/0"


def prometheus_config(home, port):
    """Writes the configuration of deploy/ for this server and this token, with short intervals."""
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    config["global"] |= {"scrape_interval": "1s", "scrape_timeout": "900ms", "evaluation_interval": "1s"}
    config["rule_files"] = [str(DEPLOY / "prometheus/alerts.yml")]
    (job,) = config["scrape_configs"]
    (home / "token").write_text(TOKEN)
    job["authorization"]["credentials_file"] = str(home / "token")
    job["static_configs"] = [{"targets": [f"127.0.0.1:{port}"]}]
    path = home / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    return path


class World:
    """The back ends, and the results of the servers' work. Each server works when the first test needs it."""

    def __init__(self, home):
        self.home, self.running, self.done, self.hit = home, [], {}, None
        self.model = tuft_server.init_model(home / "model", "--family", "qwen3", "--size", "tiny", "--seed", "7")
        try:
            self.jaeger = self.start(Jaeger(self.folder("jaeger")))
            config = DEPLOY / "jaeger/collector.yaml"
            self.collector = self.start(Collector(self.folder("collector"), config, self.jaeger))
            store, self.redis_url = redis(self.folder("redis"))
            self.start(store)
        except BaseException:
            self.stop()
            raise

    def folder(self, name):
        path = self.home / name
        path.mkdir()
        return path

    def start(self, one):
        self.running.append(one)
        return one

    def stop(self):
        for one in reversed(self.running):
            one.stop()

    def server(self, protocol, port, **changes):
        endpoint = self.collector.grpc if protocol == "grpc" else self.collector.http
        config = configuration(
            self.model,
            port=port,
            telemetry={
                "enabled": True,
                "service_name": SERVICES[protocol],
                "protocol": protocol,
                "tenant_label": True,
                "metric_interval_seconds": 1,
                "otlp_endpoint": f"http://127.0.0.1:{endpoint}",
                "metrics_token": TOKEN,
                "resource_attributes": {"deployment.environment": "e2e"},
            },
            **changes,
        )
        server = TuftServer(self.home / SERVICES[protocol], config)
        server.arguments = ["--host", "127.0.0.1", "--port", str(port)]  # the same port after a restart
        return self.start(server).start()

    def end(self, server):
        status, _ = server.stop(20)
        assert status == 0, server.log

    def did(self, protocol):
        """Lets the server of this protocol do its work once. If that failed, every later call fails too."""
        if protocol not in self.done:
            try:
                self.work_over_grpc() if protocol == "grpc" else self.work_over_http()
                self.wait_settled()
                self.done[protocol] = None
            except Exception as failure:
                self.done[protocol] = failure
        if self.done[protocol]:
            raise self.done[protocol]
        return self

    def work_over_grpc(self):
        self.scraped_from = time.time()
        (port,) = free_ports(1)
        home = self.folder("prometheus")
        self.prometheus = self.start(Prometheus(home, prometheus_config(home, port)))
        persistence = {"mode": "REDIS", "redis_url": self.redis_url}
        server = self.server("grpc", port, persistence=persistence)
        self.wait_scraped()
        load.demo(server.url, DEMO_STEPS)
        client = load.Client(server.url)
        client.mistakes()
        for _ in range(2):
            client.round()
            self.wait_scraped()
        self.wait_settled()  # a killed worker loses the data that it has not sent
        self.hit = load.lose_worker(server)
        self.wait_scraped()
        self.end(server)
        server = self.server("grpc", port, persistence=persistence)
        wait_until(lambda: "model.restored" in server.log, 60, "a run is brought back")
        load.Client(server.url).round()
        self.wait_scraped()
        self.rules = self.prometheus.get("rules")
        self.scraped_until = time.time()
        self.end(server)

    def work_over_http(self):
        server = self.server("http/protobuf", 0)
        load.demo(server.url, DEMO_STEPS)
        self.end(server)

    def wait_scraped(self):
        """Waits for two more scrapes, so that Prometheus has the current values and rates have two points."""

        def scrapes():
            found = self.prometheus.get("query", query='count_over_time(tuft_build_info{worker=""}[1h])')["result"]
            return int(found[0]["value"][1]) if found else 0

        before = scrapes()
        wait_until(lambda: scrapes() >= before + 2, 60, "Prometheus scrapes the server")

    def wait_settled(self):
        """Waits until no more spans and logs arrive."""
        sizes = []

        def still():
            now = [(self.home / "collector" / name).stat().st_size for name in ("otel_trace.json", "otel_logs.json")]
            sizes.append((time.monotonic(), now))
            then = [size for at, size in sizes if at < time.monotonic() - 3]
            return then and then[-1] == now

        wait_until(still, SETTLE_SECONDS, "the Collector has written everything")

    def spans_of(self, protocol):
        written = self.did(protocol).collector.written("otel_trace.json")
        return [span for span in otlp_json.spans(written) if span.resource["service.name"] == SERVICES[protocol]]

    def logs_of(self, protocol):
        written = self.did(protocol).collector.written("otel_logs.json")
        return [log for log in otlp_json.logs(written) if log.resource["service.name"] == SERVICES[protocol]]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    made = World(tmp_path_factory.mktemp("world"))
    yield made
    made.stop()


BOTH = pytest.mark.parametrize("protocol", SERVICES)

# The descendants of each operation's request span, down to the worker. The SDK sends `forward` as forward_backward.
OPERATIONS = {
    "create_model": ["training_controller.create_model", "training_backend.create_adapter", "hf_model.create_adapter"],
    "forward": ["training_controller.run_forward", "training_backend.forward", "hf_model.forward"],
    "forward_backward": [
        "training_controller.run_forward_backward",
        "training_backend.forward_backward",
        "hf_model.forward_backward",
    ],
    "optim_step": ["training_controller.run_optim_step", "training_backend.optim_step", "hf_model.optim_step"],
    "save_weights": ["training_controller.save_checkpoint", "training_backend.save_state", "hf_model.save_state"],
    "save_weights_for_sampler": [
        "training_controller.save_checkpoint",
        "training_backend.save_state",
        "hf_model.save_state",
    ],
    "load_weights": ["training_backend.load_state", "hf_model.load_state"],
    "asample": ["sampling_controller.run_sample", "sampling_backend.sample", "hf_model.sample"],
}
OF_THE_DEMO = {"create_model", "forward_backward", "optim_step", "save_weights", "save_weights_for_sampler", "asample"}


@pytest.mark.parametrize(
    "protocol, operation",
    [
        (protocol, operation)
        for protocol in SERVICES
        for operation in OPERATIONS
        if protocol == "grpc" or operation in OF_THE_DEMO
    ],
)
def test_the_collector_holds_one_connected_trace_of_each_operation(world, protocol, operation):
    spans = world.spans_of(protocol)
    route = "/api/v1/" + ("forward_backward" if operation == "forward" else operation)
    roots = [span for span in spans if span.kind == SERVER and span.attributes.get("http.route") == route]
    assert roots, sorted({span.name for span in spans})
    complete = 0
    for root in roots:
        assert not root.parent_id
        trace = [span for span in spans if span.trace_id == root.trace_id]
        found = otlp_json.below(trace, root)
        assert len(found) == len(trace), f"not below the request: {set(trace) - set(found)}"
        names = [span.name for span in found]
        if OPERATIONS[operation][0] not in names or any(span.failed for span in found):
            continue  # another operation on this route, or one that was meant to fail
        if world.hit and world.hit in [span.attributes.get("tuft.sampling_session_id") for span in found]:
            continue  # run by the worker that was killed before it had sent its spans
        missing = {*OPERATIONS[operation], "future_store.execute_operation"} - set(names)
        assert not missing, f"{missing} not among {names}"
        (worker,) = {span.resource["process.pid"] for span in found if span.name == OPERATIONS[operation][-1]}
        assert worker != root.resource["process.pid"]
        assert all(span.start <= span.end for span in found)
        complete += 1
    assert complete, [[span.name for span in spans if span.trace_id == root.trace_id] for root in roots]


@BOTH
@pytest.mark.parametrize("key", ["tuft.session_id", "tuft.training_run_id", "tuft.sampling_session_id"])
def test_jaeger_finds_all_traces_of_an_id_and_no_others(world, protocol, key):
    spans = [span for span in world.spans_of(protocol) if key in span.attributes]
    ids = {span.attributes[key] for span in spans}
    assert ids
    # The ids with the most and with the fewest traces.
    by_traces = sorted(ids, key=lambda one: len({span.trace_id for span in spans if span.attributes[key] == one}))
    for one in {by_traces[-1], by_traces[0]}:
        expected = {span.trace_id for span in spans if span.attributes[key] == one}
        found = world.jaeger.traces(SERVICES[protocol], {key: one})
        assert {trace["traceID"] for trace in found} == expected


@BOTH
def test_jaeger_shows_the_whole_of_a_trace(world, protocol):
    runs = {
        span.attributes["tuft.training_run_id"]
        for span in world.spans_of(protocol)
        if "tuft.training_run_id" in span.attributes
    }
    traces = [trace for run in runs for trace in world.jaeger.traces(SERVICES[protocol], {"tuft.training_run_id": run})]
    names = {span["operationName"] for trace in traces for span in trace["spans"]}
    assert {
        "POST /api/v1/forward_backward",
        "training_controller.run_forward_backward",
        "hf_model.forward_backward",
    } <= names


@BOTH
def test_logs_carry_the_ids_of_spans_that_exist(world, protocol):
    logs = world.logs_of(protocol)
    spans = {(span.trace_id, span.span_id) for span in world.spans_of(protocol)}
    inside = [log for log in logs if log.trace_id]
    assert inside, [log.body for log in logs]
    lost = [log for log in inside if (log.trace_id, log.span_id) not in spans]
    assert not lost, lost


@BOTH
def test_metrics_reach_the_collector_from_server_and_worker(world, protocol):
    names, processes = set(), set()
    for line in world.did(protocol).collector.written("otel_metrics.json"):
        for group in line["resourceMetrics"]:
            resource = otlp_json.attributes(group["resource"]["attributes"])
            if resource["service.name"] == SERVICES[protocol]:
                processes.add(resource["process.pid"])
                names |= {metric["name"] for scope in group["scopeMetrics"] for metric in scope["metrics"]}
    assert len(processes) >= 2
    assert {
        "tuft.futures.completed",
        "tuft.training.tokens_per_second",
        "tuft.sampling.requests",
        "ttft_milliseconds",
        "tuft.scheduler.step.duration",
        "http.server.request.duration",
    } <= names


@pytest.mark.parametrize("config", ["jaeger/collector.yaml", "grafana/collector.yaml"])
def test_the_collector_takes_the_configurations_of_deploy(config):
    checked = subprocess.run(
        [program("collector"), "validate", "--config", DEPLOY / config], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr


def panels():
    for path in sorted((DEPLOY / "grafana/generated").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", []):
                yield pytest.param(target["expr"], id=f"{path.stem}: {panel['title']} {target['refId']}")


@pytest.mark.parametrize("query", panels())
def test_every_query_of_every_panel_returns_data(world, query):
    query = query.replace("$__rate_interval", "10s").replace("$base_model", ".*").replace("$instance", ".*")
    found = world.did("grpc").prometheus.get(
        "query_range", query=query, start=world.scraped_from, end=world.scraped_until, step="500ms"
    )
    values = [float(value) for series in found["result"] for _, value in series["values"]]
    if not any(map(math.isfinite, values)):
        reasons = [why for metric, why in MAY_BE_EMPTY.items() if metric in query]
        assert reasons, query
        pytest.skip(reasons[0])


def test_prometheus_reads_the_endpoint_without_complaint(world):
    up = world.did("grpc").prometheus.get(
        "query_range", query='min(up{job="tuft"})', start=world.scraped_from, end=world.scraped_until, step="1s"
    )["result"]
    assert "1" in {value for series in up for _, value in series["values"]}
    assert "err=" not in world.prometheus.log_path.read_text()


def test_every_alert_rule_is_loaded_and_evaluates(world):
    written = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())
    expected = sorted(rule["alert"] for group in written["groups"] for rule in group["rules"])
    rules = [rule for group in world.did("grpc").rules["groups"] for rule in group["rules"]]
    assert sorted(rule["name"] for rule in rules) == expected
    for rule in rules:
        assert rule["health"] == "ok", rule


def test_each_alert_fires_in_its_unit_test():
    assert shutil.which("promtool"), "promtool comes with Debian's package prometheus"
    checked = subprocess.run(
        ["promtool", "test", "rules", "alerts_test.yml"], cwd=DEPLOY / "prometheus", capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
