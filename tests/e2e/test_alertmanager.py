"""Prometheus and Alertmanager with the configurations of deploy/prometheus: an alert reaches its receiver."""

import http.server
import json
import shutil
import threading

import pytest
import yaml

from backends import BackEnd, Prometheus, free_ports
from stack import GRAFANA, moved
from tuft_server import wait_until

DEPLOY = GRAFANA.parent
ALERTMANAGER = shutil.which("prometheus-alertmanager")
pytestmark = pytest.mark.skipif(not ALERTMANAGER, reason="Alertmanager is in Debian's package prometheus-alertmanager")


class Receiver(http.server.ThreadingHTTPServer):
    """Takes what Alertmanager sends: (path, body)."""

    def __init__(self):
        self.received = []
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):  # noqa: N802
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.received.append((self.path, body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments):
        pass


@pytest.fixture
def receiver():
    running = Receiver()
    yield running
    running.shutdown()
    running.server_close()


@pytest.fixture
def alertmanager(tmp_path, receiver):
    web = free_ports(1)[0]
    address = f"http://127.0.0.1:{receiver.server_port}"
    changes = {"http://host.docker.internal:5001": address, "group_wait: 30s": "group_wait: 1s"}
    (tmp_path / "alertmanager.yml").write_text(moved(DEPLOY / "prometheus/alertmanager.yml", changes))
    running = BackEnd(
        "alertmanager",
        tmp_path,
        [
            ALERTMANAGER,
            f"--config.file={tmp_path}/alertmanager.yml",
            f"--storage.path={tmp_path}/data",
            f"--web.listen-address=127.0.0.1:{web}",
            "--cluster.listen-address=",
        ],
    )
    running.wait_ready(f"http://127.0.0.1:{web}/-/ready")
    yield f"127.0.0.1:{web}"
    running.stop()


def test_a_server_that_is_down_reaches_the_one_on_call(tmp_path, receiver, alertmanager):
    rules = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())
    for group in rules["groups"]:
        group["rules"] = [{**rule, "for": "0s"} for rule in group["rules"]]
    (tmp_path / "alerts.yml").write_text(yaml.safe_dump(rules))
    (tmp_path / "token").write_text("secret")
    (nobody,) = free_ports(1)
    changes = {
        "alertmanager:9093": alertmanager,
        "host.docker.internal:10610": f"127.0.0.1:{nobody}",
        "/run/secrets/metrics_token": tmp_path / "token",
        "evaluation_interval: 10s": "evaluation_interval: 1s",
        "scrape_interval: 10s": "scrape_interval: 1s",
        "scrape_timeout: 5s": "scrape_timeout: 1s",
    }
    (tmp_path / "prometheus.yml").write_text(moved(DEPLOY / "prometheus/prometheus.yml", changes))
    prometheus = Prometheus(tmp_path, tmp_path / "prometheus.yml")
    try:
        wait_until(lambda: receiver.received, 60, "an alert arrives")
    finally:
        prometheus.stop()
    path, body = receiver.received[0]
    (alert,) = body["alerts"]
    assert path == "/on-call" and alert["status"] == "firing"
    assert alert["labels"]["alertname"] == "TuftServerDown" and alert["labels"]["severity"] == "critical"
    assert alert["annotations"]["summary"] == f"tuft on 127.0.0.1:{nobody} does not answer"
