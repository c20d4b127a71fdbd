"""Tempo, Loki and the Collector with the configurations of deploy/grafana: what Grafana would ask them is answered."""

import json
import re
import subprocess

import pytest
import yaml

import load
import tuft_server
from backends import HERE, get_json, program
from stack import GRAFANA, TEMPO_TAG, Loki, RemoteWritePrometheus, StackCollector, Tempo, images, tempo_program
from tuft_server import TuftServer, configuration, wait_until

DEPLOY = GRAFANA.parent
SERVICE = "tuft-stack"
KEYS = ["tuft.session_id", "tuft.training_run_id", "tuft.sampling_session_id"]
# A dashboard's variables of Tempo, with values that find much.
VARIABLES = {"session": ".*", "run": ".*", "sampling": ".*", "slower": "0s", "base_model": ".*"}


class Stack:
    """The back ends, and a server that has trained and sampled."""

    def __init__(self, home):
        self.home, self.running = home, []
        try:
            self.work()
        except BaseException:
            self.stop()
            raise

    def work(self):
        self.prometheus = self.start(RemoteWritePrometheus(self.folder("prometheus")))
        self.tempo = self.start(Tempo(self.folder("tempo"), self.prometheus.url))
        self.loki = self.start(Loki(self.folder("loki")))
        self.collector = self.start(StackCollector(self.folder("collector"), self.tempo, self.loki))
        model = tuft_server.init_model(self.home / "model", "--family", "qwen3", "--size", "tiny", "--seed", "7")
        telemetry = {
            "enabled": True,
            "service_name": SERVICE,
            "otlp_endpoint": f"http://127.0.0.1:{self.collector.grpc}",
            "metrics": {"enabled": False},  # they are scraped in this stack
        }
        server = self.start(TuftServer(self.home / "server", configuration(model, telemetry=telemetry)))
        server.start()
        client = load.Client(server.url)
        client.mistakes()
        client.round()
        self.run = client.trainer.get_info().model_id

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


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    try:
        tempo_program()
    except subprocess.CalledProcessError as failure:
        pytest.skip(f"Tempo's repository cannot be read, see stack.py: {failure}")
    made = Stack(tmp_path_factory.mktemp("stack"))
    yield made
    made.stop()


def found(search):
    """Waits until a search finds something, and returns that: what was sent last can be found a little later."""
    answers = []

    def finds():
        answers.append(search())
        return answers[-1]

    wait_until(finds, 60, "the search finds something")
    return answers[-1]


def test_what_is_deployed_is_what_was_tested():
    loki = re.search(r"grafana/loki/v3 v(\S+)", (HERE / "loki/go.mod").read_text())[1]
    assert images()["grafana/loki"] == loki and f"v{images()['grafana/tempo']}" == TEMPO_TAG


@pytest.mark.parametrize("path", sorted(DEPLOY.glob("*/compose.yaml")), ids=lambda path: path.parent.name)
def test_docker_compose_takes_the_compose_files(path):
    """With the parser of `docker compose config`, which checks the schema and the references inside the file."""
    checked = subprocess.run([program("compose"), "-format", "json", path], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    assert json.loads(checked.stdout)["services"].keys() == yaml.safe_load(path.read_text())["services"].keys()


@pytest.mark.parametrize("key", KEYS)
def test_tempo_finds_the_traces_of_an_id(stack, key):
    everything = found(lambda: stack.tempo.search(f"{{ span.{key} != nil }} | select(span.{key})"))
    attributes = [one for trace in everything for span in trace["spanSet"]["spans"] for one in span["attributes"]]
    values = {one["value"]["stringValue"] for one in attributes if one["key"] == key}
    assert values
    for value in sorted(values)[:2]:
        traces = stack.tempo.search(f'{{ span.{key} = "{value}" }}')
        assert traces
        assert value in {ids.get(key) for _, ids in stack.tempo.spans(traces[0]["traceID"])}


def test_tempo_shows_a_trace_from_the_request_into_the_worker(stack):
    query = f'{{ name = "hf_model.forward_backward" && span.tuft.training_run_id = "{stack.run}" }}'
    trace = found(lambda: stack.tempo.search(query))[0]
    assert trace["rootServiceName"] == SERVICE and trace["rootTraceName"] == "POST /api/v1/forward_backward"
    names = {name for name, _ in stack.tempo.spans(trace["traceID"])}
    assert {
        "POST /api/v1/forward_backward",
        "training_controller.run_forward_backward",
        "hf_model.forward_backward",
    } <= names


def test_loki_has_the_log_lines_of_a_trace(stack):
    """As the data sources link them: a span to the lines with its trace id, and a line by its label to the trace."""
    sources = yaml.safe_load((GRAFANA / "provisioning/datasources/tuft.yaml").read_text())["datasources"]
    by_name = {one["name"]: one["jsonData"] for one in sources}
    (tag,) = by_name["Tempo"]["tracesToLogsV2"]["tags"]
    (field,) = by_name["Loki"]["derivedFields"]
    assert tag["key"] == "service.name" and field["matcherType"] == "label"
    lines = found(
        lambda: [one for one in stack.loki.lines(f'{{{tag["value"]}="{SERVICE}"}}') if field["matcherRegex"] in one]
    )
    trace = lines[0][field["matcherRegex"]]
    assert stack.tempo.spans(trace)
    # The query that Grafana makes of filterByTraceID.
    assert stack.loki.lines(f'{{{tag["value"]}="{SERVICE}"}} | trace_id = `{trace}`')


def test_tempo_writes_metrics_of_spans_to_prometheus(stack):
    series, *_ = found(
        lambda: stack.prometheus.query('traces_spanmetrics_calls_total{span_name="hf_model.forward_backward"}')
    )
    assert series["metric"]["service"] == SERVICE and series["metric"]["source"] == "tempo"
    assert series["metric"]["tuft_base_model"]


def traceql():
    for path in sorted((GRAFANA / "generated").rglob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", []):
                if "queryType" in target:
                    yield pytest.param(panel["type"], target["query"], id=f"{path.stem}: {panel['title']}")


@pytest.mark.parametrize("kind, query", traceql())
def test_every_traceql_query_of_every_panel_finds_something(stack, kind, query):
    for name, value in VARIABLES.items():
        query = query.replace(f"${name}", value)
    assert "$" not in query
    if kind == "table":
        assert found(lambda: stack.tempo.search(query))
    else:
        assert found(lambda: metrics(stack.tempo, query))


def metrics(tempo, query):
    return get_json(tempo.url + "/api/metrics/query_range", q=query, since="1h", step="10s").get("series")
