"""The page on metrics of Transformers' continuous batching, read from its first line to its last."""

import pathlib

import reader
from backends import get_json
from back_ends import PROMETHEUS, PROMETHEUS_FLAGS, TOKEN, query_page, replies, serve_prometheus_page, wait_sampled
from stack import GRAFANA, moved
from tuft_server import wait_until

TELEMETRY = """telemetry:
  enabled: true
"""
VARIABLES = """export OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://localhost:9090/api/v1/otlp/v1/metrics
export OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://localhost:4318/v1/traces
export OTEL_METRICS_EXPORT_INTERVAL=1000
export OTEL_LOGS_EXPORTER=none
"""
PLACES = """Their files, and ours in the same role:

| their `examples/metrics-monitoring` | here |
|---|---|
| `prometheus.yml` | `deploy/prometheus/prometheus.yml` |
| `metrics_example.py` | `examples/metrics_example.cc` |
| `docker-compose.yml` | `deploy/grafana/compose.yaml` |
| `grafana-dashboard.yaml` | `deploy/grafana/provisioning/dashboards/tuft.yaml` |
| `grafana-datasources.yaml` | `deploy/grafana/provisioning/datasources/tuft.yaml` |
| `tempo.yaml` | `deploy/grafana/tempo.yaml` |
| `continuous-batching-dashboard.json` | `deploy/grafana/generated/sampling.json` |"""
TEN = (
    "ttft_milliseconds_bucket|request_latency_milliseconds_bucket|batch_fill_percentage_percent_bucket|"
    "active_requests_count|waiting_requests_count|kv_cache_memory_bytes|kv_cache_free_memory_bytes|decode_prefill_ratio|"
    "prefill_tokens_processed_total|decode_tokens_processed_total"
)
TTFT = "histogram_quantile(0.95, sum by (worker, le) (rate(ttft_milliseconds_bucket[1m])))"
FILL = "histogram_quantile(0.95, sum by (worker, le) (rate(batch_fill_percentage_percent_bucket[1m])))"
LONG = """ask() {
  curl -s http://localhost:10610/oai/api/v1/completions -H 'Authorization: Bearer tml-reader' \\
    -H 'Content-Type: application/json' -d '{"model": "'$1'", "prompt": "The tide", "max_tokens": 480, "n": 4}'
}
for model in small small tiny; do while ask $model >/dev/null; do :; done & done
wait
"""
SERIES = """import json, sys
for one in sorted(json.load(sys.stdin)["data"]["result"], key=str):
    labels = {key: value for key, value in one["metric"].items() if key not in ("instance", "job")}
    print(labels, one["value"][1])
"""


def walk(page):
    page.step("The project's files")
    page.say(PLACES)
    page.run("ls deploy/grafana deploy/prometheus", head=40)
    back_ends(page)
    example(page)
    serve(page)
    batching(page)
    hardware(page)
    dashboards(page)
    alerts(page)
    troubleshooting(page)


def query(text):
    return f"curl -sG {PROMETHEUS}/api/v1/query --data-urlencode 'query={text}' | python /tmp/reader/series.py"


def back_ends(page):
    page.step("Prometheus and Tempo")
    page.say(
        "The document starts containers, which cannot run here: the same programs with the files of `deploy/grafana`. The server "
        "will push its metrics, so the scrape job is removed, as the file itself says, and there is no Alertmanager."
    )
    home = serve_prometheus_page()
    pathlib.Path("/run/secrets/metrics_token").write_text(TOKEN)
    page.run(f"cp deploy/prometheus/alerts.yml {home}")
    page.run(f"sed -e '/^alerting:/,$d' deploy/prometheus/prometheus.yml | tee {home}/prometheus.yml", head=30)
    page.run(f"promtool check config {home}/prometheus.yml", expect="SUCCESS")
    flags = f"--config.file=prometheus.yml {PROMETHEUS_FLAGS}"
    page.start("prometheus", f"bash -c 'cd {home} && exec prometheus {flags}'", replies(9090, "/-/ready"), quiet=True)
    page.code("console", f"$ cd {home} && prometheus {flags} &")
    pathlib.Path("/tmp/tempo.yaml").write_text(moved(GRAFANA / "tempo.yaml", {"/var/tempo": "/tmp/tempo"}))
    page.start("tempo", "tempo -config.file=/tmp/tempo.yaml", replies(3200, "/ready"), quiet=True)
    page.code("console", "$ tempo -config.file=deploy/grafana/tempo.yaml &")


def example(page):
    page.step("One's own metrics: the example program")
    page.say("[metrics_example.cc](../../examples/metrics_example.cc), with the variables' defaults of the document:")
    page.file("series.py", SERIES, "python")
    page.run("build/release/examples/metrics_example", expect="the sum is")
    wait_sampled("custom_operation_duration_milliseconds_count", 1)
    page.run(query("custom_operation_duration_milliseconds_bucket"), head=20, expect="'le': '10")
    page.say("Its traces are in Tempo:")
    search = "http://localhost:3200/api/search"
    wait_until(lambda: get_json(search, q='{ span.operation.type = "custom" }')["traces"], 60, "Tempo finds the traces")
    page.run(
        "curl -sG localhost:3200/api/search --data-urlencode 'q={ span.operation.type = \"custom\" }' | head -c 600",
        expect="traceID",
    )


def serve(page):
    page.step("The variables of the environment")
    reader.make_models(page)
    page.file("tuft_config.yaml", reader.MODELS + TELEMETRY)
    page.file("export.sh", VARIABLES, "sh")
    page.say("The first three are the document's. The last is ours: neither Prometheus nor Tempo takes log records.")
    reader.launch(page, f"bash -c 'source /tmp/reader/export.sh && exec {reader.LAUNCH}'")
    page.start("load", reader.LOAD, lambda: True)


def batching(page):
    page.step("Metrics of continuous batching: the ten names")
    wait_sampled('ttft_milliseconds_count{worker="tiny"}', 5)
    page.run(
        query(f'count by (__name__) ({{__name__=~"{TEN}"}})'), head=12, expect=[f"'{one}'" for one in TEN.split("|")]
    )
    page.say("Requests with long answers, so that there is always something in the cache:")
    page.file("long.sh", LONG, "sh")
    page.start("long", "bash /tmp/reader/long.sh", lambda: True)
    wait_sampled('ttft_milliseconds_count{worker="tiny"}', 110)
    page.step("Time to the first token")
    page.see(query_page(TTFT, 3), "ttft", "ttft_milliseconds, P95 by base model", ["small", "tiny"], window=(1500, 900))
    page.step("Fill of a batch")
    page.see(
        query_page(FILL, 3), "fill", "batch_fill_percentage, P95 by base model", ["small", "tiny"], window=(1500, 900)
    )
    page.step("Memory of the KV cache")
    page.see(
        query_page("kv_cache_memory_bytes", 3),
        "kv-cache",
        "kv_cache_memory_bytes by base model",
        ["small"],
        window=(1500, 900),
    )


def hardware(page):
    page.step("Hardware")
    page.say("Processor and memory of the machine and the processes. There is no GPU here; the log says so.")
    page.run(
        query('{__name__=~"tuft_resource_.+", worker=""}'), head=12, expect="tuft_resource_cpu_utilization_percent"
    )
    page.run("grep -m1 no_gpu_metrics /tmp/reader/tuft.log", expect="no_gpu_metrics")


def dashboards(page):
    page.step("Grafana's data sources and dashboards")
    page.say(
        "Grafana cannot run here: Debian, PyPI and npm do not have it, its Go module lacks the web page, and containers cannot run. "
        "The queries of every panel are run against this Prometheus and Tempo by `./dev e2e observability`. Here are those of the "
        "dashboard that takes the place of `continuous-batching-dashboard.json`:"
    )
    page.run(
        "python tests/walkthroughs/panels_answered.py deploy/grafana/generated/sampling.json",
        head=40,
        expect="panels with data",
    )
    page.stop("load")
    page.stop("long")


def alerts(page):
    page.step("Alerts: the thresholds")
    page.run(
        "cd deploy/prometheus && promtool check rules alerts.yml && promtool test rules alerts_test.yml alerts_thresholds_test.yml",
        expect="SUCCESS",
    )
    page.see(
        f"{PROMETHEUS}/alerts?search=High",
        "alerts",
        "The alerts on utilisation, memory, latency and errors",
        ["TuftRequestLatencyHigh"],
        window=(1500, 900),
    )


def troubleshooting(page):
    page.step("Troubleshooting: is the way to Prometheus open?")
    page.say(
        "The document's command sends a text that is no metrics. Prometheus says so, which shows that the way is open:"
    )
    page.run(
        f"curl -s -i -X POST {PROMETHEUS}/api/v1/otlp/v1/metrics -H 'Content-Type: application/x-protobuf' -d test_data",
        expect="400 Bad Request",
    )
    page.say("With the command of [operations.md](../operations.md#no-telemetry-shows-up) the answer is 200:")
    page.run(
        f"curl -s -i -X POST {PROMETHEUS}/api/v1/otlp/v1/metrics -H 'Content-Type: application/json' -d '{{\"resourceMetrics\":[]}}'",
        expect="200 OK",
    )
    page.step("Troubleshooting: telemetry's own log")
    page.stop("tuft")
    reader.launch(
        page,
        f"bash -c 'source /tmp/reader/export.sh && exec env OTEL_LOG_LEVEL=debug {reader.LAUNCH}'",
    )
    page.run("timeout 30 grep -m3 'telemetry.export\\]' <(tail -n +1 -f /tmp/reader/tuft.log)", expect="traces|metrics")
    page.stop("tuft")
