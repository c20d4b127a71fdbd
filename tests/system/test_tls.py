"""Tests HTTPS: the unmodified SDK with a private certificate authority, and a change of the certificate."""
import shutil
import signal
import ssl
import urllib.request

import pytest
import tinker

from certificates import make_certificates
from conftest import service_client
from examples_of_data import datum
from tuft_server import MODEL, TuftServer, configuration, wait_until


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("tls") / "first")


def tls_of(files):
    return {"certificate": str(files / "server.pem"), "private_key": str(files / "server.key")}


@pytest.fixture(scope="module")
def server(model_dir, files, tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setenv("SSL_CERT_FILE", str(files / "ca.pem"))
    with TuftServer(tmp_path_factory.mktemp("home"), configuration(model_dir, tls=tls_of(files))) as running:
        yield running
    patch.undo()


def test_the_sdk_trains_and_samples_over_https(server):
    assert server.url.startswith("https://")
    client = service_client(server).create_lora_training_client(base_model=MODEL, rank=8, seed=1)
    passed = client.forward_backward([datum("over a wire that nobody reads")], "cross_entropy")
    stepped = client.optim_step(tinker.types.AdamParams(learning_rate=1e-3))
    assert passed.result().metrics["loss:sum"] > 0
    stepped.result()
    sampler = client.save_weights_and_get_sampling_client()
    prompt = tinker.types.ModelInput.from_ints([1, 2, 3])
    assert sampler.sample(prompt, 1, tinker.types.SamplingParams(max_tokens=4)).result().sequences[0].tokens


def test_old_versions_are_refused(server, files):
    context = ssl.create_default_context(cafile=files / "ca.pem")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(OSError):
        urllib.request.urlopen(server.url + "/api/v1/healthz", context=context, timeout=10)


def test_a_new_certificate_is_taken_on_sighup(server, files, tmp_path):
    fresh = make_certificates(tmp_path / "fresh")
    for name in ("server.pem", "server.key"):
        shutil.copy(fresh / name, files / name)
    server.process.send_signal(signal.SIGHUP)
    context = ssl.create_default_context(cafile=fresh / "ca.pem")

    def answered():
        try:
            return urllib.request.urlopen(server.url + "/api/v1/healthz", context=context, timeout=10).status == 200
        except OSError:
            return False

    wait_until(answered, 10, "the new certificate is shown")


@pytest.mark.parametrize("change, words", [
    ({"private_key": None}, "tls.private_key"),
    ({"certificate": "/nowhere/server.pem"}, "tls.certificate"),
    ({"private_key": "ca.key"}, "is not the key of the certificate"),
])
def test_files_that_do_not_serve_stop_the_start(model_dir, files, tmp_path, change, words):
    tls = {**tls_of(files), **change}
    if tls["private_key"] == "ca.key":
        tls["private_key"] = str(files / "ca.key")
    server = TuftServer(tmp_path, configuration(model_dir, tls={k: v for k, v in tls.items() if v}))
    server.spawn()
    assert server.wait_exit() == 1
    assert words in server.log
