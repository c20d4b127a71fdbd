"""Metrics in a real Prometheus, from the same server on both ways: scraped, and pushed over OTLP through the Collector.
Every query of the dashboards and every alert must work on both."""

import json
import math
import re
import shutil
import subprocess

import pytest
import yaml

import catalogue_metrics
from tuft_server import MODEL, wait_until
from world import DEPLOY, prometheus_config
from backends import Prometheus

WAYS = pytest.mark.parametrize("way", ["scraped", "pushed"])
SELECTIONS = {"all": ".*", "one base model": re.escape(MODEL)}

# Queries whose result may be empty or zero here: a metric in the query, and the reason.
MAY_BE_EMPTY = {
    "tuft_resource_gpu": "needs a GPU",
    'http_response_status_code=~"5': "needs a server that fails",
    "otel_sdk_processor_": "needs more records than leave at once",
    "system_network_io_bytes_total": "needs traffic beyond the loopback",
    "tuft_device_time_seconds_total": "needs the libtorch back end",
    "tuft_futures_queued": "needs more work than a worker takes at a time",
    "tuft_futures_payload_bytes": "needs an operation during a reading",
    "tuft_http_receiving_bytes": "needs a body during a reading",
    "tuft_http_sending_bytes": "needs a client that reads slowly",
    "tuft_kv_cache_alloc_failures_total": "needs a full KV cache",
    "tuft_kv_cache_block_idle_seconds": "needs a full KV cache",
    "tuft_kv_cache_evictions_total": "needs a full KV cache",
    "tuft_kv_cache_block_reuse_gap_seconds": "follows one block in 64",
    "tuft_lora_adapters_waiting": "needs more adapters than fit",
    "tuft_lora_evictions_total": "needs more adapters than fit",
    "tuft_lora_page_pending_bytes": "needs more adapters than fit",
    "tuft_lora_requests_waiting_for_adapter": "needs more adapters than fit",
    "tuft_openai_requests_total": "needs an overloaded server",
    "tuft_scheduler_fairness_deficit_max": "needs several users",
    "tuft_scheduler_last_step_age_seconds": "needs an engine that hangs",
    "tuft_scheduler_preemptions_total": "needs a full KV cache",
    "tuft_sessions_expired_total": "needs a client that ends without a word",
    "waiting_requests_count": "needs more requests than fit into a step",
    "tuft_training_ooms_total": "needs a device without memory",
    "hw_power_watts": "needs a GPU",
    "hw_temperature_celsius": "needs a GPU",
    "tuft_checkpoint_failures_total": "needs a disk that fails",
    "tuft_futures_evicted_total": "needs results over the memory limit",
    "tuft_futures_try_again_total": "needs an operation that takes longer than a poll",
    "tuft_http_rejected_total": "needs an overloaded server",
    "tuft_scheduler_admission_rejections_total": "needs a full engine",
    "tuft_sampling_nonfinite_logits_total": "needs a broken model",
    "tuft_store_errors_total": "needs a store that fails",
    "tuft_store_slow_ops_total": "needs a slow store",
    "tuft_telemetry_dropped_total": "needs loss",
    "tuft_telemetry_log_suppressed_total": "needs a flood of logs",
    "tuft_telemetry_nonfinite_total": "needs a defect",
    "tuft_telemetry_rejected_total": "needs a collector that refuses records",
    "tuft_telemetry_retries_total": "needs a collector that fails",
    "tuft_telemetry_sampled_out_total": "needs a sampling ratio below 1",
    "tuft_telemetry_series_overflowed_total": "needs a defect",
    "tuft_training_nonfinite_total": "needs a run that diverges",
}
# Prometheus records these itself when it scrapes, or about itself.
OF_PROMETHEUS = re.compile(r"up|scrape_.*|target_info|ALERTS.*")


@pytest.fixture(scope="module")
def empty_prometheus(tmp_path_factory):
    home = tmp_path_factory.mktemp("prometheus")
    running = Prometheus(home, prometheus_config(home))
    yield running
    running.stop()


def test_prometheus_names_every_instrument_as_the_metrics_page_does(empty_prometheus):
    catalogue_metrics.push(empty_prometheus)
    kinds = {name: kind for name, kind, _ in catalogue_metrics.rows()}
    expected = {}
    for name, (series, labels) in catalogue_metrics.expected().items():
        if kinds[name] != "Histogram":
            expected[series] = labels
            continue
        expected |= {series + "_bucket": labels | {"le"}, series + "_sum": labels, series + "_count": labels}

    def found():
        series = empty_prometheus.get("series", **{"match[]": f'{{job="{catalogue_metrics.JOB}"}}'})
        return {one["__name__"]: one.keys() - {"__name__", "job", "instance"} for one in series}

    wait_until(found, 20, "Prometheus has the series")
    assert found() == expected


def comparable(labels):
    """Prometheus writes the bounds of buckets as 10.0 when it scrapes, and as 10 when they come over OTLP."""
    bound = {"le": float(labels["le"])} if "le" in labels else {}
    return frozenset((key, value) for key, value in (labels | bound).items() if key not in ("instance", "job"))


def test_the_same_series_come_on_both_ways(world):
    world.did("grpc")
    series = {}
    for way, prometheus in world.prometheus.items():
        found = prometheus.get(
            "series", **{"match[]": '{__name__!=""}', "start": world.worked_from, "end": world.worked_until}
        )
        series[way] = {comparable(one) for one in found if not OF_PROMETHEUS.fullmatch(one["__name__"])}
    assert len(series["scraped"]) > 1000
    different = [dict(one) for one in series["scraped"] ^ series["pushed"]]
    assert not different


def panels():
    for path in sorted((DEPLOY / "grafana/generated").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in (one for one in panel.get("targets", []) if "expr" in one):  # the others ask Tempo
                yield pytest.param(target["expr"], id=f"{path.stem}: {panel['title']} {target['refId']}")


@WAYS
@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("query", panels())
def test_every_query_of_every_panel_returns_data(world, query, selection, way):
    reasons = [why for metric, why in MAY_BE_EMPTY.items() if metric in query]
    if way == "pushed" and "scrape_duration_seconds" in query:
        reasons.append("only a scrape has it")
    query = query.replace("$__rate_interval", "10s").replace("$instance", ".*")
    query = query.replace("$base_model", SELECTIONS[selection].replace("\\", "\\\\"))
    found = world.did("grpc").prometheus[way].get(
        "query_range", query=query, start=world.worked_from, end=world.worked_until, step="500ms"
    )
    values = [float(value) for series in found["result"] for _, value in series["values"]]
    if not any(value and math.isfinite(value) for value in values):
        assert reasons, query
        pytest.skip(reasons[0])


def test_prometheus_reads_the_endpoint_without_complaint(world):
    up = world.did("grpc").prometheus["scraped"].get(
        "query_range", query='min(up{job="tuft"})', start=world.worked_from, end=world.worked_until, step="1s"
    )["result"]
    assert "1" in {value for series in up for _, value in series["values"]}


@WAYS
def test_prometheus_refuses_nothing(world, way):
    assert "err=" not in world.did("grpc").prometheus[way].log_path.read_text()


@WAYS
def test_every_alert_rule_is_loaded_and_evaluates(world, way):
    written = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())
    expected = sorted(rule["alert"] for group in written["groups"] for rule in group["rules"])
    rules = [rule for group in world.did("grpc").rules[way]["groups"] for rule in group["rules"]]
    assert sorted(rule["name"] for rule in rules) == expected
    for rule in rules:
        assert rule["health"] == "ok", rule


def test_each_alert_fires_in_its_unit_test():
    assert shutil.which("promtool"), "promtool comes with Debian's package prometheus"
    checked = subprocess.run(
        ["promtool", "test", "rules", "alerts_test.yml"], cwd=DEPLOY / "prometheus", capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
