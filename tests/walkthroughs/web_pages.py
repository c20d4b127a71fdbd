"""The web pages of Jaeger and Prometheus, which their Go modules lack: built once with npm, kept in ~/.cache/tuft-e2e.

Prometheus' page is in the sources of its module. Jaeger's has a git repository of its own; TUFT_JAEGER_UI_REPOSITORY
names a copy of it where GitHub cannot be reached."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from backends import CACHE, HERE, go

JAEGER_UI_REPOSITORY = os.environ.get("TUFT_JAEGER_UI_REPOSITORY", "https://github.com/jaegertracing/jaeger-ui")
JAEGER_UI_COMMIT = "1ceadb6f6fb29774bfaa77a6148499ff7a04902b"  # v1.76.0
# The page asks for a newer Node than Debian 12 has. Its build does not need it.
INSTALL = "npm ci --ignore-scripts --no-audit --no-fund --engine-strict=false --loglevel=error"


def version(program, module):
    """Returns the version of a module that a back end is built from."""
    return re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", (HERE / program / "go.mod").read_text(), re.M)[1]


def sh(command, folder, **environment):
    subprocess.run(["nice", "bash", "-ec", command], cwd=folder, env={**os.environ, **environment}, check=True)


def built(name, make):
    """Returns the directory CACHE/name. If it does not exist, `make(sources)` builds it and returns its place."""
    path = CACHE / name
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        print(f"building {name} (some minutes, once)", flush=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as sources:
            part = path.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            shutil.copytree(make(pathlib.Path(sources)), part)
            part.rename(path)
    return path


def prometheus_page():
    module = "github.com/prometheus/prometheus"
    found = version("prometheus", module)

    def make(sources):
        listed = subprocess.run(
            [go(), "mod", "download", "-json", f"{module}@{found}"],
            cwd=sources,
            env={"GOPROXY": "https://proxy.golang.org", "GONOSUMDB": "*", **os.environ},
            check=True,
            capture_output=True,
            text=True,
        )
        shutil.copytree(pathlib.Path(json.loads(listed.stdout)["Dir"]) / "web/ui", sources / "ui")
        sh("chmod -R u+w .", sources / "ui")
        sh(INSTALL, sources / "ui")
        sh(
            "npm run build -w @prometheus-io/lezer-promql && npm run build -w @prometheus-io/codemirror-promql",
            sources / "ui",
        )
        sh("npx --no-install vite build", sources / "ui/mantine-ui")
        return sources / "ui/mantine-ui/dist"

    return built(f"prometheus-page-{found}", make)


def jaeger_page():
    def make(sources):
        sh(f"git clone -q {JAEGER_UI_REPOSITORY} . && git checkout -q {JAEGER_UI_COMMIT}", sources)
        sh(INSTALL, sources)
        sh("npm run build", sources / "packages/plexus")
        sh(
            "npx --no-install vite build",
            sources / "packages/jaeger-ui",
            NODE_ENV="production",
            REACT_APP_VSN_STATE="{}",
        )
        return sources / "packages/jaeger-ui/build"

    return built(f"jaeger-page-{JAEGER_UI_COMMIT[:16]}", make)


if __name__ == "__main__":
    print(prometheus_page())
    print(jaeger_page())
