"""Tests GET /metrics of the real server: its access check, its formats, and that its values equal those of OTLP."""
import shutil
import subprocess
import urllib.error
import urllib.request

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

import workload
from tuft_server import MODEL, TuftServer, configuration

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


def scrape(url, **headers):
    """Returns (status, content type, body)."""
    request = urllib.request.Request(url + "/metrics", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def samples(page):
    """Returns {(name, labels): value}."""
    return {(sample.name, frozenset(sample.labels.items())): sample.value
            for family in parse_prometheus(page) for sample in family.samples}


def total(page, name, **labels):
    return sum(value for (sample, all_labels), value in samples(page).items()
               if sample == name and labels.items() <= dict(all_labels).items())


@pytest.fixture(scope="module")
def server(model_dir, tmp_path_factory):
    """The page exists even without telemetry."""
    with TuftServer(tmp_path_factory.mktemp("home"), configuration(model_dir)) as one:
        one.fresh = scrape(one.url)
        workload.train_and_sample(one.url)
        workload.fail(one.url)
        yield one


def test_series_are_there_before_anything_happened(server):
    status, content_type, page = server.fresh
    assert status == 200 and content_type.startswith("text/plain")
    for name in ("tuft_training_models_active", "tuft_sampling_requests_total", "tuft_futures_queue_length",
                 "tuft_requests_terminal_total", "tuft_auth_failures_total", "tuft_http_rejected_total"):
        found = [value for (sample, _), value in samples(page).items() if sample == name]
        assert found and not any(found), name


def test_both_formats_are_read_by_their_parsers(server):
    status, content_type, page = scrape(server.url, Accept=OPENMETRICS)
    assert status == 200 and content_type.startswith("application/openmetrics-text")
    assert page.endswith("# EOF\n")
    assert len(list(parse_openmetrics(page))) > 50
    status, content_type, page = scrape(server.url)
    assert status == 200 and content_type.startswith("text/plain") and "version=0.0.4" in content_type
    assert len(list(parse_prometheus(page))) > 50


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool comes with Debian's prometheus")
def test_promtool_reads_it(server):
    page = scrape(server.url)[2]
    run = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True, timeout=60)
    # Names and units that other projects' dashboards require count as style errors.
    assert run.returncode in (0, 3), run.stderr
    assert "error while linting" not in run.stderr


def test_the_worker_is_on_it_under_its_own_label(server):
    page = scrape(server.url)[2]
    assert total(page, "tuft_scheduler_steps_total", worker=MODEL) > 0
    assert total(page, "prefill_tokens_processed_total", worker=MODEL) > 0
    assert any(name == "process_cpu_time_seconds_total" and ("worker", MODEL) in labels for name, labels in samples(page))
    assert any(name == "process_cpu_time_seconds_total" and "worker" not in dict(labels) for name, labels in samples(page))


def test_it_says_what_was_done(server):
    page = scrape(server.url)[2]
    assert total(page, "tuft_futures_created_total", operation_type="optim_step") == 2
    assert total(page, "tuft_sampling_requests_total", status="ok", base_model=MODEL) == 3
    assert total(page, "tuft_futures_queue_length") == 0
    assert total(page, "tuft_training_models_active") == 1
    assert total(page, "tuft_futures_created_total") == total(page, "tuft_futures_completed_total")


def test_no_secret_is_on_it(server):
    page = scrape(server.url)[2]
    for secret in (workload.CANARY, workload.ANSWER, workload.STRANGER, "tml-alice", "tml-bob"):
        assert secret not in page


def test_without_a_token_it_is_for_this_machine_only(server):
    for header in ("X-Forwarded-For", "Forwarded"):
        status, content_type, body = scrape(server.url, **{header: "for=203.0.113.7"})
        assert status == 403 and content_type == "application/json" and "telemetry.metrics_token" in body


def test_with_a_token_it_asks_for_it(model_dir, tmp_path):
    config = configuration(model_dir, telemetry={"metrics_token": "scrape-me"})
    with TuftServer(tmp_path, config) as one:
        assert scrape(one.url)[0] == 403
        assert scrape(one.url, Authorization="Bearer scrape-m")[0] == 403
        assert scrape(one.url, Authorization="Bearer scrape-me", **{"X-Forwarded-For": "203.0.113.7"})[0] == 200
        assert "scrape-me" not in one.log


def test_switched_off_it_does_not_exist(model_dir, tmp_path):
    with TuftServer(tmp_path, configuration(model_dir, telemetry={"metrics_endpoint": False})) as one:
        assert scrape(one.url)[0] == 404
