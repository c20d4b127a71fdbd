"""Checks the flags of `tuft launch` for traces, as FastDeploy's users write them, with a collector that gets the export."""
import pytest

from otlp_receiver import OtlpReceiver
from raw_client import RawClient
from tuft_server import ALICE, MODEL, TuftServer, configuration, tuft, wait_until


@pytest.fixture
def receiver():
    receiver = OtlpReceiver()
    yield receiver
    receiver.stop()


def sampled(server):
    raw = RawClient(server.url, ALICE)
    sampler = raw.sampler(base_model=MODEL).json["sampling_session_id"]
    assert raw.result(raw.sample(sampler, 1)).status == 200


def test_trace_enable_and_an_endpoint_export_traces_alone(receiver, model_dir, tmp_path):
    server = TuftServer(tmp_path, configuration(model_dir), env={"OTEL_METRIC_EXPORT_INTERVAL": "100"},
                        arguments=["--trace-enable", "--otlp-traces-endpoint", receiver.endpoint]).start()
    sampled(server)
    assert server.stop()[0] == 0
    names = {span.name for span in receiver.spans()}
    assert {"POST /api/v1/asample", "PREPROCESS", "PREFILL", "hf_model.sample"} <= names
    assert not receiver.logs() and not receiver.metrics(), "the user asked for traces"


def test_an_endpoint_without_trace_enable_exports_nothing(receiver, model_dir, tmp_path):
    server = TuftServer(tmp_path, configuration(model_dir), arguments=["--otlp-traces-endpoint", receiver.endpoint]).start()
    sampled(server)
    assert server.stop()[0] == 0
    assert not receiver.all_bytes()


def test_trace_enable_is_stronger_than_the_file_and_leaves_its_endpoint(receiver, model_dir, tmp_path):
    config = configuration(model_dir, telemetry={"enabled": False, "traces": {"endpoint": receiver.endpoint}})
    server = TuftServer(tmp_path, config, arguments=["--trace-enable"]).start()
    sampled(server)
    wait_until(lambda: any(span.name == "hf_model.sample" for span in receiver.spans()), 20, "the worker has exported")
    assert server.stop()[0] == 0


def test_an_endpoint_that_is_none_stops_the_start_and_names_the_key(model_dir, tmp_path):
    path = tmp_path / "tuft.yaml"
    path.write_text(TuftServer(tmp_path / "home", configuration(model_dir)).config_path.read_text())
    ended = tuft("launch", "-c", path, "--trace-enable", "--otlp-traces-endpoint", "ftp://nowhere:1", env={"TUFT_HOME": str(tmp_path)})
    assert ended.returncode == 1 and "telemetry.traces.endpoint" in ended.stderr, ended.stderr
