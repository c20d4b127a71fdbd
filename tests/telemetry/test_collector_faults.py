"""Checks that a collector that is absent, or accepts connections and never answers, does not affect requests."""
import socket
import time

import pytest

from otlp_receiver import HangingCollector, OtlpReceiver
from raw_client import PROTOBUF, RawClient
from tuft_server import ALICE, MODEL, TuftServer, configuration, wait_until


def unused_endpoint():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def serve(model_dir, home, endpoint, **env):
    telemetry = {"enabled": endpoint is not None, "otlp_endpoint": endpoint}
    return TuftServer(home, configuration(model_dir, telemetry=telemetry),
                      env={"OTEL_METRIC_EXPORT_INTERVAL": "200", "OTEL_BSP_SCHEDULE_DELAY": "100", **env})


def timed_requests(server, count=150):
    """Returns the median duration of a small request, after one full training step and one sample."""
    client = RawClient(server.url, ALICE)
    model = client.model(MODEL)
    assert client.result(client.train(model, 1), protobuf=True).headers["Content-Type"] == PROTOBUF
    assert client.result(client.optim(model, 2)).json["metrics"]["optimizer_step"] == 1
    sampler = client.sampler(base_model=MODEL).json["sampling_session_id"]
    assert client.result(client.sample(sampler, 1), protobuf=True).headers["Content-Type"] == PROTOBUF
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        assert client.session()
        seconds.append(time.perf_counter() - began)
    return sorted(seconds)[count // 2]


@pytest.fixture(scope="module")
def quiet_median(model_dir, tmp_path_factory):
    with serve(model_dir, tmp_path_factory.mktemp("off"), None) as server:
        return timed_requests(server)


@pytest.mark.parametrize("fault", ["absent", "hanging"])
def test_requests_go_on_and_the_stop_is_bounded(fault, model_dir, tmp_path, quiet_median):
    collector = HangingCollector() if fault == "hanging" else None
    server = serve(model_dir, tmp_path, collector.endpoint if collector else unused_endpoint()).start()
    try:
        median = timed_requests(server)
        # A generous limit: a request must not wait for the collector. The benchmark measures the small cost.
        assert median < max(10 * quiet_median, 0.01)
    finally:
        status, seconds = server.stop()
        if collector:
            collector.stop()
    assert status == 0 and seconds < 5, server.log
    # A failure is logged once or from time to time, not for each batch.
    assert sum("telemetry" in line.lower() or "export" in line.lower() for line in server.lines) < 20, server.log


def test_a_collector_that_comes_late_gets_the_rest(model_dir, tmp_path):
    endpoint = unused_endpoint()
    server = serve(model_dir, tmp_path, endpoint).start()
    timed_requests(server, 5)
    receiver = OtlpReceiver(int(endpoint.rsplit(":", 1)[1]))
    try:
        # The exporter retries with growing pauses.
        wait_until(lambda: any(metric.name == "tuft.telemetry.exported" for metric, _ in receiver.metrics()), 60,
                   "the library's own metrics, which show what was lost")
        timed_requests(server, 5)
        wait_until(lambda: any(span.name == "training_controller.run_optim_step" for span in receiver.spans()), 60,
                   "the spans of the later work")
    finally:
        server.stop()
        receiver.stop()


def test_a_wrong_endpoint_is_a_start_error_that_names_the_key(model_dir, tmp_path):
    server = serve(model_dir, tmp_path, "not a url").spawn()
    assert server.wait_exit(20) == 1
    assert "otlp_endpoint" in server.log


def test_debug_mode_prints_instead_of_exporting(model_dir, tmp_path):
    server = serve(model_dir, tmp_path, unused_endpoint(), TUFT_OTEL_DEBUG="1").start()
    timed_requests(server, 3)
    server.stop()
    assert "training_controller.run_optim_step" in server.log
    assert ALICE not in server.log
