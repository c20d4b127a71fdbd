"""docs/walkthroughs/README.md: what was run, when, with which versions, and what was not."""

import re
import subprocess

from back_ends import versions
from transcript import FOLDER, ROOT, now

HEAD = """# Walkthroughs

tuft's telemetry follows three documents ([coming-from.md](../coming-from.md)). Here somebody reads each of them from its first line
to its last, with tuft in the place of the document's server: the commands, what they printed, and what a browser showed.

| document | page |
|---|---|
| TuFT, *Observability*; its Chinese page has the same steps | [tuft.md](tuft.md) |
| FastDeploy, *Tracing* | [fastdeploy.md](fastdeploy.md) |
| Transformers, metrics of continuous batching | [transformers.md](transformers.md) |

`./dev e2e walkthroughs` runs every step again and fails where one fails; `./dev e2e walkthroughs --write` also replaces the pages
and pictures. It needs Node, Chromium and Go, and ports, `/tmp` and host names of its own, which Linux namespaces give it: the
addresses on the pages are those of the documents.
"""
NOT_RUN = """## What was not run

| | why | instead |
|---|---|---|
| the containers of `deploy/*/compose.yaml` | containers do not run on the machine of these tests | the same programs, with the same configurations and ports |
| SigNoz | consists of containers | its views are shown in Jaeger and Prometheus. [signoz.md](../signoz.md) says what of our files for it was checked |
| Grafana | Debian, PyPI and npm do not have it; its Go module lacks the web page | the query of every panel is run by `./dev e2e observability`, those of the dashboard *Sampling* on [transformers.md](transformers.md) |
| GPU metrics | the machine has no GPU | the log line that says so |
| the library installed in another project (`find_package`) | a walkthrough builds nothing but tuft | its examples, which include the same headers, are run |

## What made the reader stumble

| | then |
|---|---|
| No page said how a client learns its session id and its sampling session's, by which one is to search | [operations.md](../operations.md#finding-one-users-work) says it |
| Alertmanager ends at once on a machine whose only address is 127.0.0.1 | [operations.md](../operations.md#metrics-and-dashboards) names the flag |
| Jaeger 1.76 warns at its start that version 1 is no longer developed | [operations.md](../operations.md#traces-and-logs) says so. It still takes and shows everything |
| The document's command for testing the way to Prometheus gets 400, because `test_data` is no metrics | [operations.md](../operations.md#no-telemetry-shows-up) has a command that gets 200 |
| `telemetry.started` said how each signal leaves, but not to which address | it names the address |
| `telemetry.export_failed` said that the collector did not accept the data where nothing listened | it says that an export failed; its `detail` says why |
| A graph of `kv_cache_memory_bytes` stays at 0 while answers take milliseconds, because a gauge is read once in each interval | the page asks for long answers |
"""


def module(program, name):
    text = (ROOT / f"tests/e2e/{program}/go.mod").read_text()
    return re.search(rf"^\s*(?:require )?{re.escape(name)} v(\S+)", text, re.MULTILINE)[1]


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def write(bin_folder):
    """Writes the page. The programs are those of the newest commit that changes what they are built from."""
    program = subprocess.run(
        [bin_folder / "tuft", "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    rows = {
        "tuft": f"{program}, built from commit {git('log', '-1', '--format=%h', '--', 'src', 'proto', 'CMakeLists.txt', 'cmake')}",
        "Collector": module("collector", "go.opentelemetry.io/collector/otelcol").removeprefix("v"),
        "Jaeger": module("jaeger", "github.com/jaegertracing/jaeger") + ", with its page of the same version",
        "Prometheus": module("prometheus", "github.com/prometheus/prometheus").replace("0.305.", "3.5.")
        + ", with its page",
        "Tempo": tempo_version(),
        **versions(),
    }
    table = "\n".join(f"| {name} | {version} |" for name, version in rows.items())
    text = f"{HEAD}\n## What was run\n\nOn {now()}:\n\n| | version |\n|---|---|\n{table}\n\n{NOT_RUN}"
    (FOLDER / "README.md").write_text(text)


def tempo_version():
    from stack import TEMPO_TAG

    return TEMPO_TAG.removeprefix("v")
