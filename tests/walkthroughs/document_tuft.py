"""TuFT's page on observability, read from its first line to its last. (The Chinese page has the same steps.)"""

import reader
from backends import get_json
from back_ends import (
    JAEGER,
    query_page,
    search_page,
    start_jaeger,
    start_prometheus,
    start_redis,
    trace_with,
    wait_sampled,
)
from tuft_server import wait_until

QUICK_START = """telemetry:
  enabled: true
  service_name: tuft
  otlp_endpoint: http://localhost:4317
  resource_attributes:
    deployment.environment: production
    service.version: 1.0.0
"""
END_TO_END = """persistence:
  mode: REDIS
  redis_url: redis://localhost:6379/0
telemetry:
  enabled: true
  service_name: tuft
  otlp_endpoint: http://localhost:4317
  metrics_token: ${oc.env:TUFT_METRICS_TOKEN}
  resource_attributes:
    deployment.environment: demo
"""
TRAINING = ["POST /api/v1/forward_backward", "training_controller.run_forward_backward", "hf_model.forward_backward"]
SAMPLE = ["POST /api/v1/asample", "sampling_controller.run_sample", "PREPROCESS", "SCHEDULE", "PREFILL", "DECODE"]
THROUGHPUT = (
    "histogram_quantile(0.5, sum by (base_model, le) (rate(tuft_training_tokens_per_second_per_second_bucket[1m])))"
)
QPS = "sum by (base_model) (rate(tuft_sampling_requests_total[1m]))"


def walk(page):
    quick_start(page)
    debug(page)
    endpoint(page)
    back_ends(page)
    tuft_and_client(page)
    traces(page)
    logs(page)
    metrics(page)
    developer(page)
    troubleshooting(page)
    alerts(page)


def quick_start(page):
    page.step("Quick start: the telemetry block")
    reader.make_models(page)
    page.say("The block goes into the file of a server with two small base models (made by `tuft init-model`).")
    page.file("tuft_config.yaml", reader.MODELS + QUICK_START)
    reader.launch(page)
    page.say("Nothing listens on port 4317 yet. The server starts all the same, works, and says so in its log:")
    page.run(f"python {reader.CLIENT} tiny 2>/dev/null", head=20, expect="tuft.session_id")
    refused(page, 4317)
    page.stop("tuft")


def refused(page, port):
    page.run(
        "timeout 60 grep -m1 -o 'telemetry.export_failed.*' <(tail -n +1 -f /tmp/reader/tuft.log)", expect=f":{port}"
    )


def debug(page):
    page.step("Quick start: debug mode")
    reader.launch(page, f"env TUFT_OTEL_DEBUG=1 {reader.LAUNCH}")
    page.run(f"python {reader.CLIENT} tiny 2>/dev/null", show=False)
    page.stop("tuft")
    page.say("Spans, metrics and log records are printed instead of sent:")
    for kind, name in (
        ("SPAN", "hf_model.forward_backward"),
        ("METRIC", "tuft.futures.created.*forward_backward"),
        ("LOG", "model.created"),
    ):
        page.run(f"grep -m2 '^{kind} .*{name}' /tmp/reader/tuft.log", expect=kind)


def endpoint(page):
    page.step("Exporters: where the address comes from")
    page.say("A variable takes the place of the key. The file of this step has no `otlp_endpoint`:")
    page.run("sed -i '/otlp_endpoint/d' /tmp/reader/tuft_config.yaml", show=True)
    reader.launch(page, f"env TUFT_OTLP_ENDPOINT=http://localhost:4999 {reader.LAUNCH}", lines="telemetry.started")
    refused(page, 4999)
    page.stop("tuft")
    page.say("With neither, it is OpenTelemetry's default:")
    reader.launch(page, lines="telemetry.started")
    refused(page, 4317)
    page.stop("tuft")


def back_ends(page):
    page.step("End to end, step 1: start the back ends")
    page.say(
        "The document starts SigNoz, which consists of containers; none can run here. "
        "[signoz.md](../signoz.md) has the same step for the SigNoz of today. In its place: the Collector and Jaeger with the file "
        "of `deploy/jaeger`, Prometheus and Alertmanager with those of `deploy/prometheus`, unchanged, and Redis, so that the "
        "store's spans exist."
    )
    start_jaeger(page)
    start_prometheus(page)
    start_redis(page)


def tuft_and_client(page):
    page.step("End to end, steps 2 and 3: configure and launch the server, and run a client")
    page.file("tuft_config.yaml", reader.MODELS + END_TO_END)
    reader.launch(page)
    page.say(
        "[client.py](../../tests/walkthroughs/client.py) trains three steps, saves, and samples; at its end it prints its ids."
    )
    page.ids = reader.ids(page.run(f"python {reader.CLIENT} small 2>/dev/null", head=20, expect="tuft.session_id"))
    page.say("A load in the background for the graphs:")
    page.start("load", reader.LOAD, lambda: True)


def traces(page):
    page.step("End to end, step 4: traces by session")
    page.say("In place of SigNoz' Traces Explorer: Jaeger's search, with the id as a tag.")
    session, run, sampling = (
        page.ids[f"tuft.{key}"] for key in ("session_id", "training_run_id", "sampling_session_id")
    )
    trace_with("tuft", SAMPLE, **{"tuft.sampling_session_id": sampling})
    page.see(
        search_page("tuft", 50, **{"tuft.session_id": session}),
        "session",
        "All traces of a session",
        ["asample", "forward_backward"],
        window=(1500, 1200),
    )
    page.step("End to end, step 4: traces by training run")
    page.see(
        search_page("tuft", 50, **{"tuft.training_run_id": run}),
        "run",
        "The traces of a training run",
        ["optim_step", "save_weights"],
        window=(1500, 1200),
    )
    page.step("End to end, step 4: traces by sampling session")
    page.see(
        search_page("tuft", 50, **{"tuft.sampling_session_id": sampling}),
        "sampling",
        "The traces of a sampling session",
        ["asample"],
        window=(1500, 1200),
    )
    page.step("End to end, step 4: one HTTP request")
    page.trace = trace_with("tuft", TRAINING, **{"tuft.training_run_id": run})
    page.say("A training step, from the HTTP request over the store into the worker's process:")
    page.see(
        f"{JAEGER}/trace/{page.trace}", "training-trace", "The trace of a training step", TRAINING, window=(1500, 600)
    )
    sample = trace_with("tuft", SAMPLE, **{"tuft.sampling_session_id": sampling})
    page.say("A sample, with the stages PREPROCESS, SCHEDULE, PREFILL, DECODE and POSTPROCESS:")
    page.see(f"{JAEGER}/trace/{sample}", "sample-trace", "The trace of a sample", SAMPLE, window=(1500, 700))


METRICS = """import json, sys
for name, (one, *_) in sorted(json.load(sys.stdin)["data"].items()):
    print(f"{name:60}{one['type']:10}{one['help']}")
"""
LOGS = """import json, sys
for line in open("/tmp/otel_logs.json"):
    for resource in json.loads(line)["resourceLogs"]:
        for scope in resource["scopeLogs"]:
            for log in scope["logRecords"]:
                if log.get("traceId") == sys.argv[1]:
                    print(log["spanId"], log.get("eventName") or "", "|", log["body"]["stringValue"])
"""


def logs(page):
    page.step("End to end, step 4: logs of a trace")
    page.say(
        "SigNoz and Grafana lead from a span to its log records by the two ids. Here the same question is asked of the file "
        "that the Collector writes: which records belong to the training step of the picture above?"
    )
    page.file("logs.py", LOGS, "python")
    page.run(f"python /tmp/reader/logs.py {page.trace}", expect="[0-9a-f]{16} ")


def metrics(page):
    page.step("End to end, step 4: all metrics")
    wait_sampled('tuft_sampling_requests_total{base_model="tiny"}', 2)
    page.say("The names that Prometheus has, with type and help, as its page *Metrics explorer* lists them:")
    page.file("metrics.py", METRICS, "python")
    page.run(
        "curl -s localhost:9090/api/v1/metadata | python /tmp/reader/metrics.py | grep ^tuft_",
        head=14,
        tail=6,
        expect=["tuft_futures_created +counter", "tuft_resource_cpu_utilization_percent"],
    )
    page.say("On this machine without a GPU the log says why its gauges are missing:")
    page.run("grep -m1 no_gpu_metrics /tmp/reader/tuft.log", expect="no_gpu_metrics")
    page.step("End to end, step 4: the panel training throughput")
    wait_sampled('tuft_sampling_requests_total{base_model="tiny"}', 16)
    page.say("P50 by base model. The same query is the panel of the dashboard *Overview*.")
    page.see(
        query_page(THROUGHPUT, 3),
        "throughput",
        "Training throughput, P50 by base model",
        ["small", "tiny"],
        window=(1500, 900),
    )
    page.step("End to end, step 4: the panel sampling QPS")
    page.see(
        query_page(QPS, 3), "qps", "Sampling requests per second by base model", ["small", "tiny"], window=(1500, 900)
    )
    page.stop("load")


def developer(page):
    page.step("Developer guide: spans, metrics and logs of one's own")
    page.say("[telemetry_guide.cc](../../examples/telemetry_guide.cc) is the document's guide as a C++ program.")
    page.run("build/release/examples/telemetry_guide", head=16, tail=0, expect="my_operation")


def troubleshooting(page):
    page.step("Troubleshooting")
    page.say("The checks of [operations.md](../operations.md#troubleshooting), against the running Collector:")
    page.run(
        "curl -s -i -X POST http://localhost:4318/v1/traces -H 'Content-Type: application/json' -d '{\"resourceSpans\":[]}'",
        expect="200 OK",
    )
    page.run(
        'curl -s -H "Authorization: Bearer $TUFT_METRICS_TOKEN" localhost:10610/metrics | grep -E "^otel_sdk_exporter.*exported"',
        expect="exported",
    )


def alerts(page):
    page.step("Names for alerts: a server that is gone")
    page.say("The server is stopped, as a fault would. A minute later its alert fires:")
    page.stop("tuft")
    firing = "http://localhost:9090/api/v1/alerts"
    wait_until(
        lambda: any(one["state"] == "firing" for one in get_json(firing)["data"]["alerts"]), 180, "an alert fires"
    )
    page.see(
        "http://localhost:9090/alerts",
        "alerts",
        "The alerts in Prometheus",
        ["firing", "TuftServerDown"],
        window=(1500, 760),
    )
    wait_until(lambda: get_json("http://localhost:9093/api/v2/alerts"), 60, "Alertmanager has the alert")
    page.say("Alertmanager has it, for those who are on call:")
    page.run("amtool --alertmanager.url=http://localhost:9093 alert query -o extended", expect="TuftServerDown")
