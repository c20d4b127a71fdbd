#!/usr/bin/env python3
"""The real back ends that the observability tests run against: builds them once, starts and stops them.

`python backends.py` builds what is missing, from the Go module proxy; go.mod and go.sum beside each program pin every
byte. Programs are kept in ~/.cache/tuft-e2e by the hash of what they are built from.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request

from tuft_server import wait_until

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "tuft-e2e"
PACKAGES = {
    "collector": ".",
    "jaeger": "github.com/jaegertracing/jaeger/cmd/all-in-one",
    # Without the files of its web page, which no test opens.
    "prometheus": "github.com/prometheus/prometheus/cmd/prometheus",
}
BUILD_SECONDS = 3600


def program(name):
    """Returns the path of a back end, and builds it if it does not exist."""
    folder = HERE / name
    sources = sorted(path for path in folder.iterdir() if path.suffix in (".go", ".mod", ".sum"))
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    built = CACHE / f"{name}-{digest}"
    if not built.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        print(f"building the {name} (some minutes, once)", flush=True)
        part = built.with_suffix(".part")
        # The checksums are in go.sum. Some networks that reach the proxy do not reach the checksum database.
        environment = {
            "GOFLAGS": "-p=1 -mod=readonly",
            "GOPROXY": "https://proxy.golang.org",
            "GONOSUMDB": "*",
            "CGO_ENABLED": "0",
            **os.environ,
        }
        subprocess.run(
            [
                "nice",
                "-n",
                "10",
                go(),
                "build",
                "-trimpath",
                "-buildvcs=false",
                "-ldflags",
                "-s -w",
                "-o",
                part,
                PACKAGES[name],
            ],
            cwd=folder,
            env=environment,
            check=True,
            timeout=BUILD_SECONDS,
        )
        part.rename(built)
    return built


def go():
    found = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    assert found, "building the Collector, Jaeger and Prometheus needs Go 1.25 or newer: https://go.dev/dl"
    return found


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def get_json(url, **query):
    address = url + ("?" + urllib.parse.urlencode(query, doseq=True) if query else "")
    with urllib.request.urlopen(address, timeout=30) as answer:
        return json.load(answer)


def answers(url):
    with contextlib.suppress(OSError):
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    return False


class BackEnd:
    """A program that runs until stop(). Its output goes to a file in its home directory."""

    def __init__(self, name, home, command, environment=None):
        self.name, self.home, self.log_path = name, home, home / f"{name}.log"
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(
                [str(word) for word in command],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=home,
                env={**os.environ, **(environment or {})},
            )

    def wait_ready(self, url):
        def ready():
            assert self.process.poll() is None, f"the {self.name} ended:\n{self.log_path.read_text()[-4000:]}"
            return answers(url)

        wait_until(ready, 60, f"the {self.name} answers on {url}")
        return self

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Jaeger(BackEnd):
    """Jaeger in one process, with the traces in memory."""

    def __init__(self, home):
        self.otlp, otlp_http, self.query, query_grpc, admin, collector, collector_grpc = free_ports(7)
        flags = {
            "collector.otlp.grpc.host-port": self.otlp,
            "collector.otlp.http.host-port": otlp_http,
            "query.http-server.host-port": self.query,
            "query.grpc-server.host-port": query_grpc,
            "admin.http.host-port": admin,
            "collector.http-server.host-port": collector,
            "collector.grpc-server.host-port": collector_grpc,
        }
        super().__init__(
            "jaeger",
            home,
            [program("jaeger"), *(f"--{flag}=127.0.0.1:{port}" for flag, port in flags.items())],
            {"SPAN_STORAGE_TYPE": "memory"},
        )
        self.wait_ready(f"http://127.0.0.1:{admin}/")

    def traces(self, service, tags):
        """Searches for traces like Jaeger's web page."""
        found = get_json(
            f"http://127.0.0.1:{self.query}/api/traces",
            service=service,
            tags=json.dumps(tags),
            limit=500,
            lookback="1h",
        )
        assert not found.get("errors"), found["errors"]
        return found["data"]

    def services(self):
        return get_json(f"http://127.0.0.1:{self.query}/api/services")["data"] or []


class Collector(BackEnd):
    """The Collector with configurations of deploy/, which it merges. `addresses`: variables that they read."""

    def __init__(self, home, configs, addresses):
        self.grpc, self.http, health = free_ports(3)
        super().__init__(
            "collector",
            home,
            [program("collector"), *(word for config in configs for word in ("--config", config))],
            {
                "OTLP_GRPC": f"127.0.0.1:{self.grpc}",
                "OTLP_HTTP": f"127.0.0.1:{self.http}",
                "HEALTH": f"127.0.0.1:{health}",
                "OUTPUT": str(home),
                **addresses,
            },
        )
        self.wait_ready(f"http://127.0.0.1:{health}/")

    def written(self, name):
        """Returns the exports in one of its files, which has one JSON object per line."""
        path = self.home / name
        whole = path.read_text().rpartition("\n")[0] if path.exists() else ""  # the last line may be incomplete
        return [json.loads(line) for line in whole.splitlines() if line]


class Prometheus(BackEnd):
    """Prometheus with the receiver for OTLP, as deploy/grafana starts it."""

    def __init__(self, home, config):
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self.otlp = self.url + "/api/v1/otlp"  # an exporter appends /v1/metrics
        super().__init__(
            "prometheus",
            home,
            [
                program("prometheus"),
                f"--config.file={config}",
                f"--storage.tsdb.path={home}/tsdb",
                f"--web.listen-address=127.0.0.1:{port}",
                "--web.enable-otlp-receiver",
                "--log.level=warn",
            ],
        )
        self.wait_ready(self.url + "/-/ready")

    def get(self, path, **query):
        found = get_json(f"{self.url}/api/v1/{path}", **query)
        assert found["status"] == "success", found
        return found["data"]

    def greatest(self, query):
        """Returns the greatest value of a query's series; 0 if it has none."""
        found = self.get("query", query=f"max({query})")["result"]
        return float(found[0]["value"][1]) if found else 0

    def samples(self, selector):
        """Returns how many samples of one series came in the last hour."""
        found = self.get("query", query=f"count_over_time({selector}[1h])")["result"]
        return max((int(one["value"][1]) for one in found), default=0)


if __name__ == "__main__":
    for one in PACKAGES:
        print(program(one))
