"""The back ends on the ports that the documents name, as programs that a reader starts."""

import json
import os
import pathlib
import shutil
import subprocess
from urllib.parse import quote

from backends import answers, get_json, program
from stack import tempo_program
from tuft_server import wait_until
from web_pages import jaeger_page, prometheus_page

PROGRAMS = pathlib.Path("/tmp/bin")
PROMETHEUS = "http://localhost:9090"
JAEGER = "http://localhost:16686"
TOKEN = "walkthrough-token"
JAEGER_FLAGS = "--collector.otlp.grpc.host-port=:14317 --collector.otlp.http.host-port=:14318"
COLLECTOR = "OTLP_GRPC=:4317 OTLP_HTTP=:4318 JAEGER=jaeger:14317 OUTPUT=/tmp otelcol-contrib --config deploy/jaeger/collector.yaml"
# The flags of deploy/grafana/compose.yaml.
PROMETHEUS_FLAGS = (
    "--web.enable-remote-write-receiver --web.enable-otlp-receiver --enable-feature=exemplar-storage --log.level=warn"
)


def put_on_path():
    """Gives the programs the names that they have in their own documentation."""
    PROGRAMS.mkdir()
    for name, path in {
        "otelcol-contrib": program("collector"),
        "jaeger-all-in-one": program("jaeger"),
        "prometheus": program("prometheus"),
        "tempo": tempo_program(),
        "alertmanager": shutil.which("prometheus-alertmanager"),
    }.items():
        (PROGRAMS / name).symlink_to(path)


def replies(port, path="/"):
    return lambda: answers(f"http://localhost:{port}{path}")


def start_jaeger(page):
    """Jaeger and the Collector in front of it, as deploy/jaeger/compose.yaml connects them."""
    page.environment["SPAN_STORAGE_TYPE"] = "memory"
    page.start(
        "jaeger",
        f"jaeger-all-in-one {JAEGER_FLAGS} --query.static-files={jaeger_page()}",
        replies(16686),
        quiet=True,
    )
    page.code("console", f"$ jaeger-all-in-one {JAEGER_FLAGS} &")
    page.start("collector", f"env {COLLECTOR}", replies(13133), lines="Everything is ready")


def serve_prometheus_page():
    """Makes the directory for Prometheus to run in. It looks for its page there, because it was built without."""
    home = pathlib.Path("/tmp/prometheus")
    shutil.rmtree(home, ignore_errors=True)
    (home / "web/ui/static").mkdir(parents=True)
    (home / "web/ui/static/mantine-ui").symlink_to(prometheus_page())
    return home


def start_prometheus(page):
    """Prometheus and Alertmanager with the files of deploy/, unchanged."""
    home = serve_prometheus_page()
    pathlib.Path("/run/secrets/metrics_token").write_text(TOKEN)
    page.environment["TUFT_METRICS_TOKEN"] = TOKEN
    page.run(f"cp deploy/prometheus/{{prometheus,alerts,alertmanager}}.yml {home}")
    flags = f"--config.file=prometheus.yml {PROMETHEUS_FLAGS}"
    page.start("prometheus", f"bash -c 'cd {home} && exec prometheus {flags}'", replies(9090, "/-/ready"), quiet=True)
    page.code("console", f"$ cd {home} && prometheus {flags} &")
    flags = f"--config.file={home}/alertmanager.yml --storage.path=/tmp/alertmanager --cluster.listen-address="
    page.start("alertmanager", f"alertmanager {flags}", replies(9093, "/-/ready"), quiet=True)
    page.code("console", f"$ alertmanager {flags} &")


def start_redis(page):
    def ready():
        return subprocess.run(["redis-cli", "ping"], capture_output=True).returncode == 0

    page.start("redis", "redis-server --save '' --dir /tmp", ready, lines="Ready to accept")


def wait_sampled(selector, count):
    """Waits until Prometheus has so many samples of a series."""

    def enough():
        found = get_json(PROMETHEUS + "/api/v1/query", query=f"count_over_time({selector}[1h])")["data"]["result"]
        return max((int(one["value"][1]) for one in found), default=0) >= count

    wait_until(enough, 300, f"{count} samples of {selector}")


def query_page(query, minutes=5):
    """The address of a graph on Prometheus' page."""
    return f"{PROMETHEUS}/query?g0.expr={quote(query)}&g0.tab=graph&g0.range_input={minutes}m"


def search_page(service, limit=20, **tags):
    """The address of a search on Jaeger's page."""
    found = f"&tags={quote(json.dumps(tags))}" if tags else ""
    return f"{JAEGER}/search?service={service}&lookback=1h&limit={limit}{found}"


def traces(service, operation=None, **tags):
    """Searches as Jaeger's page does."""
    query = {"service": service, "tags": json.dumps(tags), "lookback": "1h", "limit": 500}
    return get_json(JAEGER + "/api/traces", **query, **({"operation": operation} if operation else {}))["data"]


def trace_with(service, wanted, operation=None, **tags):
    """Waits for a trace that has spans of all these names, and returns its id."""

    def complete():
        for one in traces(service, operation, **tags):
            if set(wanted) <= {span["operationName"] for span in one["spans"]}:
                return one["traceID"]
        return None

    return wait_until(complete, 60, f"a trace with {wanted}")


def versions():
    def first_line(command):
        ran = subprocess.run(command, shell=True, capture_output=True, text=True)
        return (ran.stdout + ran.stderr).strip().splitlines()[0]

    return {
        "Chromium": first_line("chromium --version").split(" built")[0],
        "Redis": first_line("redis-server --version").split(" sha")[0],
        "Alertmanager": first_line("prometheus-alertmanager --version").split(" (")[0],
        "machine": f"{os.cpu_count()} processors, no GPU",
    }
