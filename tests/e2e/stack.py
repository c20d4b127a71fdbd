#!/usr/bin/env python3
"""Tempo, Loki, Prometheus and the Collector with the configurations of deploy/grafana, on free ports. Grafana itself is
not here: no package registry has it.

`python stack.py` builds Loki and the parser of Docker Compose from the Go module proxy, as backends.py builds the others,
and Tempo, which that proxy does not have, from the git repository that TUFT_TEMPO_REPOSITORY names."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import yaml

from backends import BUILD_SECONDS, CACHE, PACKAGES, BackEnd, free_ports, get_json, go, program

PACKAGES["loki"] = "github.com/grafana/loki/v3/cmd/loki"
PACKAGES["compose"] = "github.com/compose-spec/compose-go/v2/cmd"
GRAFANA = pathlib.Path(__file__).resolve().parents[2] / "deploy/grafana"
TEMPO_TAG, TEMPO_COMMIT = "v2.8.2", "6b92615861c316ae83b2b4a7e727a136ddc55e52"


def tempo_program():
    """Returns the path of Tempo, and builds it if it does not exist. Its repository has all sources that it needs."""
    built = CACHE / f"tempo-{TEMPO_COMMIT[:16]}"
    if built.exists():
        return built
    repository = os.environ.get("TUFT_TEMPO_REPOSITORY", "https://github.com/grafana/tempo")
    CACHE.mkdir(parents=True, exist_ok=True)
    print("building the tempo (some minutes, once)", flush=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as sources:
        subprocess.run(["git", "clone", "-q", "--depth=1", "-b", TEMPO_TAG, repository, sources], check=True)
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=sources, check=True, capture_output=True, text=True)
        assert head.stdout.strip() == TEMPO_COMMIT, f"{repository} has another {TEMPO_TAG}"
        command = ["nice", "-n", "10", go(), "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w"]
        environment = {**os.environ, "GOFLAGS": "-p=1 -mod=vendor", "CGO_ENABLED": "0"}
        part = built.with_suffix(".part")
        subprocess.run(
            [*command, "-o", part, "./cmd/tempo"], cwd=sources, env=environment, check=True, timeout=BUILD_SECONDS
        )
    part.rename(built)
    return built


def moved(config, replacements):
    """Returns the text of a configuration with other addresses and directories. Each one must be in it."""
    text = config.read_text()
    for old, new in replacements.items():
        assert old in text, f"{config.name} has no {old}"
        text = text.replace(old, str(new))
    return text


class Tempo(BackEnd):
    """Tempo, which writes the metrics that it generates from traces to the Prometheus at `prometheus`."""

    def __init__(self, home, prometheus):
        self.otlp, otlp_http, web, grpc = free_ports(4)
        self.url = f"http://127.0.0.1:{web}"
        config = yaml.safe_load(
            moved(
                GRAFANA / "tempo.yaml",
                {
                    "0.0.0.0:4317": f"127.0.0.1:{self.otlp}",
                    "0.0.0.0:4318": f"127.0.0.1:{otlp_http}",
                    "http_listen_port: 3200": f"http_listen_port: {web}",
                    "http://prometheus:9090": prometheus,
                    "/var/tempo": home / "data",
                },
            )
        )
        config["server"] |= {
            "http_listen_address": "127.0.0.1",
            "grpc_listen_address": "127.0.0.1",
            "grpc_listen_port": grpc,
        }
        # What is the same but for time: the configuration gathers for 15 s before it writes.
        config["metrics_generator"]["registry"]["collection_interval"] = "1s"
        (home / "tempo.yaml").write_text(yaml.safe_dump(config))
        super().__init__("tempo", home, [tempo_program(), f"-config.file={home}/tempo.yaml"])
        self.wait_ready(self.url + "/ready")

    def search(self, query, **more):
        """Searches for traces like Grafana."""
        return get_json(self.url + "/api/search", q=query, limit=500, **more).get("traces") or []

    def spans(self, trace_id):
        """Returns the name and the attributes of each span of a trace."""
        found = get_json(f"{self.url}/api/v2/traces/{trace_id}")["trace"]["resourceSpans"]
        return [
            (span["name"], {one["key"]: one["value"].get("stringValue") for one in span.get("attributes", [])})
            for resource in found
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]


class Loki(BackEnd):
    def __init__(self, home):
        web, grpc = free_ports(2)
        self.url = f"http://127.0.0.1:{web}"
        text = moved(
            GRAFANA / "loki.yaml",
            {
                "http_listen_port: 3100": f"http_listen_port: {web}\n  http_listen_address: 127.0.0.1",
                ": /loki": f": {home}/data",
            },
        )
        text = text.replace("server:\n", f"server:\n  grpc_listen_port: {grpc}\n  grpc_listen_address: 127.0.0.1\n", 1)
        (home / "loki.yaml").write_text(text)
        super().__init__("loki", home, [program("loki"), f"-config.file={home}/loki.yaml"])
        self.wait_ready(self.url + "/ready")

    def lines(self, query):
        """Returns the labels of each line, with its structured metadata."""
        found = get_json(self.url + "/loki/api/v1/query_range", query=query, limit=5000, since="1h")
        assert found["status"] == "success", found
        return [stream["stream"] for stream in found["data"]["result"] for _ in stream["values"]]


class RemoteWritePrometheus(BackEnd):
    """Prometheus with what Tempo needs of the command line in compose.yaml."""

    def __init__(self, home):
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        flags = yaml.safe_load((GRAFANA / "compose.yaml").read_text())["services"]["prometheus"]["command"]
        needed = ["--web.enable-remote-write-receiver", "--enable-feature=exemplar-storage"]
        assert set(needed) <= set(flags)
        (home / "prometheus.yml").write_text("{}")
        super().__init__(
            "prometheus",
            home,
            [
                shutil.which("prometheus") or "prometheus",
                f"--config.file={home}/prometheus.yml",
                f"--storage.tsdb.path={home}/tsdb",
                f"--web.listen-address=127.0.0.1:{port}",
                *needed,
            ],
        )
        self.wait_ready(self.url + "/-/ready")

    def query(self, query):
        found = get_json(self.url + "/api/v1/query", query=query)
        assert found["status"] == "success", found
        return found["data"]["result"]


class StackCollector(BackEnd):
    def __init__(self, home, tempo, loki):
        self.grpc, http, health = free_ports(3)
        text = moved(
            GRAFANA / "collector.yaml",
            {
                "0.0.0.0:4317": f"127.0.0.1:{self.grpc}",
                "0.0.0.0:4318": f"127.0.0.1:{http}",
                "0.0.0.0:13133": f"127.0.0.1:{health}",
                "tempo:4317": f"127.0.0.1:{tempo.otlp}",
                "http://loki:3100": loki.url,
            },
        )
        config = yaml.safe_load(text)
        # The Collector's metrics of itself have a fixed port, which another one on this machine may have.
        config["service"]["telemetry"] = {"metrics": {"level": "none"}}
        (home / "collector.yaml").write_text(yaml.safe_dump(config))
        super().__init__("collector", home, [program("collector"), "--config", home / "collector.yaml"])
        self.wait_ready(f"http://127.0.0.1:{health}/")


def images():
    """Returns the version of each image of compose.yaml by its name."""
    text = (GRAFANA / "compose.yaml").read_text()
    return dict(re.findall(r"image: (\S+):v?(\d\S*)$", text, re.MULTILINE))


if __name__ == "__main__":
    print(program("loki"))
    print(program("compose"))
    try:
        print(tempo_program())
    except subprocess.CalledProcessError as failure:
        print(f"no Tempo, its tests will be skipped: {failure}")
