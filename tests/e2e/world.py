"""The back ends and the servers of the observability tests, and what the servers do: once, for all tests.

Two servers run one after the other: the first exports OTLP over gRPC, the second over HTTP. The first gets every kind
of work, loses a worker and is restarted. One Prometheus scrapes it, with the configuration and the rules of deploy/; the
Collector forwards the metrics that it pushes to another one, with the same rules."""

import pathlib
import subprocess
import time

import yaml

import load
import otlp_json
import tuft_server
from backends import BackEnd, Collector, Jaeger, Prometheus, free_ports
from tuft_server import TuftServer, configuration, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
TOKEN = "e2e-metrics-token"
SERVICES = {"grpc": "tuft-grpc", "http/protobuf": "tuft-http"}
DEMO_STEPS = 12
SETTLE_SECONDS = 60
# What Prometheus must have seen of the busy time: gauges above zero, and counts that grew between two readings.
BUSY = [
    "max_over_time(active_requests_count[1h])",
    "max_over_time(tuft_kv_cache_usage_ratio[1h])",
    "changes(tuft_prefix_cache_hits_total[1h])",
]


def redis(home):
    (port,) = free_ports(1)
    server = BackEnd("redis", home, ["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", ""])
    wait_until(
        lambda: subprocess.run(["redis-cli", "-p", str(port), "ping"], capture_output=True).returncode == 0,
        20,
        "Redis answers",
    )
    return server, f"redis://127.0.0.1:{port}/0"


def prometheus_config(home, port=None):
    """Writes the configuration of deploy/ with short intervals; without a port nothing is scraped."""
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    pace = {"scrape_interval": "1s", "scrape_timeout": "900ms"}
    config["global"] |= {**pace, "evaluation_interval": "1s"}
    config["rule_files"] = [str(DEPLOY / "prometheus/alerts.yml")]
    del config["alerting"]  # tests/e2e/test_alertmanager.py has one
    (job,) = config["scrape_configs"]
    if port:
        (home / "token").write_text(TOKEN)
        job |= {**pace, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
        job["authorization"]["credentials_file"] = str(home / "token")
    else:
        config["scrape_configs"] = []
    path = home / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    return path


def forwarding_config(home, prometheus):
    """Writes what makes the Collector of deploy/jaeger forward metrics, too, as the one of deploy/grafana does."""
    exporters = yaml.safe_load((DEPLOY / "grafana/collector.yaml").read_text())["exporters"]
    exporters["otlphttp/prometheus"]["endpoint"] = prometheus.otlp
    path = home / "forward.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "exporters": {"otlphttp/prometheus": exporters["otlphttp/prometheus"]},
                "service": {"pipelines": {"metrics": {"exporters": ["file/metrics", "otlphttp/prometheus"]}}},
            }
        )
    )
    return path


class World:
    """The back ends, and the results of the servers' work. Each server works when the first test needs it."""

    def __init__(self, home):
        self.home, self.running, self.done, self.hit = home, [], {}, None
        self.model = tuft_server.init_model(home / "model", "--family", "qwen3", "--size", "tiny", "--seed", "7")
        try:
            self.jaeger = self.start(Jaeger(self.folder("jaeger")))
            (self.port,) = free_ports(1)
            self.prometheus = {"scraped": self.start_prometheus("scraped", self.port)}
            self.prometheus["pushed"] = self.start_prometheus("pushed")
            folder = self.folder("collector")
            configs = [DEPLOY / "jaeger/collector.yaml", forwarding_config(folder, self.prometheus["pushed"])]
            self.collector = self.start(Collector(folder, configs, {"JAEGER": f"127.0.0.1:{self.jaeger.otlp}"}))
            store, self.redis_url = redis(self.folder("redis"))
            self.start(store)
        except BaseException:
            self.stop()
            raise

    def folder(self, name):
        path = self.home / name
        path.mkdir()
        return path

    def start_prometheus(self, name, port=None):
        home = self.folder(name)
        return self.start(Prometheus(home, prometheus_config(home, port)))

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
        self.worked_from, port = time.time(), self.port
        persistence = {"mode": "REDIS", "redis_url": self.redis_url}
        server = self.server("grpc", port, persistence=persistence)
        self.wait_seen()
        load.demo(server.url, DEMO_STEPS)
        client = load.Client(server.url)
        for _ in range(2):
            client.mistakes()
            client.round()
            self.wait_seen()
        load.keep_busy(server.url, self.busy_seen)
        self.wait_seen()
        self.wait_settled()  # a killed worker loses the data that it has not sent
        self.hit = load.lose_worker(server)
        self.wait_seen()
        self.end(server)
        server = self.server("grpc", port, persistence=persistence)
        wait_until(lambda: "model.restored" in server.log, 60, "a run is brought back")
        load.Client(server.url).round()
        self.wait_seen()
        self.rules = {way: prometheus.get("rules") for way, prometheus in self.prometheus.items()}
        self.worked_until = time.time()
        self.end(server)

    def work_over_http(self):
        server = self.server("http/protobuf", 0)
        load.demo(server.url, DEMO_STEPS)
        self.end(server)

    def wait_seen(self):
        """Waits for two more samples on each way, so that Prometheus has the current values and rates have two points."""
        for way, prometheus in self.prometheus.items():
            before = prometheus.samples('tuft_build_info{worker=""}')
            wait_until(
                lambda: prometheus.samples('tuft_build_info{worker=""}') >= before + 2, 60, f"metrics are {way}"
            )

    def busy_seen(self):
        return all(prometheus.greatest(query) > 0 for prometheus in self.prometheus.values() for query in BUSY)

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
