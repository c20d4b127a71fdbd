"""Runs the programs as the pods of deploy/kubernetes do, with the paths and the addresses of this machine."""

import json
import re
import signal
import ssl
import subprocess
import urllib.error
import urllib.request

import pytest
import yaml
from certificates import make_certificates
from tuft_server import ALICE, BIN, USERS, LoggedProcess, TuftServer, clean_environment, free_port, init_model, wait_until

from kubernetes_objects import FOLDERS, KUBERNETES, build

pytestmark = pytest.mark.skipif(not (BIN / "tuft-worker").exists(), reason=f"the programs are not built: {BIN}")

TOKEN, SCRAPER = "a token of sufficient length", "of-the-scraper"


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_flags_of_a_worker_exist(folder):
    helped = subprocess.run([BIN / "tuft-worker", "--help"], capture_output=True, text=True, check=True).stdout
    flags = build(folder).flags()
    assert len(flags) >= 7
    for flag in flags:
        assert re.search(rf"^\s*--{flag}\b", helped, re.MULTILINE), flag


class Volumes:
    """Directories in place of the volumes of a pod."""

    def __init__(self, root):
        self.root = root

    def here(self, path):
        return self.root / path.lstrip("/")

    def moved(self, text, objects):
        """Returns `text` with the paths below this directory."""
        containers = [objects.container(name) for name in ("tuft-server", "tuft-worker")]
        mounts = {mount["mountPath"] for one in containers for mount in one["volumeMounts"]}
        return re.sub(rf"(?<![\w/])({'|'.join(mounts)})(?![\w-])", rf"{self.root}\1", text)

    def write(self, path, text):
        self.here(path).parent.mkdir(parents=True, exist_ok=True)
        self.here(path).write_text(text)


@pytest.fixture
def volumes(tmp_path):
    """What the claims and the Secrets of the README contain."""
    files = make_certificates(tmp_path / "certificates")
    found = Volumes(tmp_path / "root")
    found.write("/etc/tuft/tls/tls.crt", (files / "server.pem").read_text())
    found.write("/etc/tuft/tls/tls.key", (files / "server.key").read_text())
    found.write("/etc/tuft/authority/ca.crt", (files / "ca.pem").read_text())
    found.write("/etc/tuft/join/token", TOKEN)
    found.write("/etc/tuft/users/users.yaml", json.dumps(USERS) + "\n")
    for path in ("/models/Qwen", "/pages"):
        found.here(path).mkdir(parents=True)
    init_model(found.here("/models/Qwen3-0.6B"), "--size", "tiny", "--max-position", "4096")
    return found


def test_the_server_does_not_start_without_the_token_of_the_scraper(volumes):
    objects = build("base")
    server = TuftServer(volumes.here("/var/lib/tuft"), volumes.moved(objects.config_text(), objects)).spawn()
    assert server.wait_exit() == 1
    assert "TUFT_METRICS_TOKEN" in server.log, server.log


class Workers:
    """The pods of the workers, by their numbers."""

    def __init__(self, volumes, objects, port):
        self.volumes, self.objects, self.port, self.processes = volumes, objects, port, []

    def join(self):
        arguments = [self.volumes.moved(one, self.objects).replace("tuft-join:10620", f"localhost:{self.port}")
                     for one in self.objects.container("tuft-worker")["args"]]
        worker = LoggedProcess()
        worker.spawn_logged([BIN / "tuft-worker", *arguments, "--threads=1"],
                            {**clean_environment(), "K8S_POD_NAME": f"tuft-worker-{len(self.processes)}"})
        self.processes.append(worker)

    def end_last(self):
        """Ends the pod with the highest number, as a StatefulSet does that gets smaller."""
        worker = self.processes.pop()
        worker.process.send_signal(signal.SIGTERM)
        try:
            assert worker.process.wait(timeout=20) == 0, worker.log
        finally:
            worker.process.kill()

    def kill(self):
        for worker in self.processes:
            worker.process.kill()
            worker.process.wait()


def check_load(page):
    """Checks that the server has what the rules of the adapter ask for, before anything is trained or sampled."""
    found = [(name, set(labels.split(","))) for name, labels in re.findall(r"^(\w+){(.*)} 0$", page, re.MULTILINE)]
    rules = yaml.safe_load((KUBERNETES / "prometheus/adapter.yml").read_text())["rules"]
    asked = re.findall(r"(tuft_\w+){([^}]*)}", " ".join(rule["metricsQuery"] for rule in rules))
    assert len(asked) == 4
    for name, matchers in asked:
        wanted = {one for one in matchers.split(",") if "=" in one}
        assert len([1 for known, labels in found if known == name and wanted <= labels]) == 1, (name, wanted)


@pytest.mark.parametrize(("folder", "third"), [("base", "standby"), ("overlays/example", "standby"),
                                               ("overlays/autoscaling", "ready")])
def test_workers_join_the_server_serve_and_leave(folder, third, volumes):
    objects = build(folder)
    (model,) = objects.config()["supported_models"]
    places, port = model["workers"], free_port()
    text = volumes.moved(objects.config_text(), objects).replace("10620", str(port))
    server = TuftServer(volumes.here("/var/lib/tuft"), text, env={"TUFT_METRICS_TOKEN": SCRAPER})
    trusted = ssl.create_default_context(cafile=volumes.here("/etc/tuft/authority/ca.crt"))

    def get(path, **headers):
        with urllib.request.urlopen(urllib.request.Request(server.url + path, headers=headers), context=trusted) as answer:
            return answer.read().decode()

    def states():
        rows = json.loads(get("/api/v1/observe/workers", **{"X-API-Key": ALICE}))["workers"]
        return [row["state"] for row in rows if row["state"] != "dead"]

    def page():
        return get("/metrics", Authorization=f"Bearer {SCRAPER}")

    def workers(state):
        return [int(one) for one in re.findall(rf'^tuft_workers{{.*state="{state}".*}} (\d)', page(), re.MULTILINE)]

    server.healthy = lambda: '"ready":false' in get("/api/v1/healthz")
    pods = Workers(volumes, objects, port)
    try:
        server.start()
        with pytest.raises(urllib.error.HTTPError, match="403"):
            get("/metrics")
        assert workers("absent") == [places]
        check_load(page())
        # What the alert TuftWorkerDown asks for.
        assert re.search(r"^tuft_worker_up{.*} 0$", page(), re.MULTILINE)
        for expected in (["ready"], ["ready", "ready"], ["ready", "ready", third]):
            pods.join()
            wait_until(lambda wanted=expected: states() == wanted, 30,
                       f"the workers are {expected}; the newest said:\n{pods.processes[-1].log}")
        assert '"ready":true' in get("/api/v1/healthz")
        ready = 2 if third == "standby" else 3
        assert (workers("ready"), workers("standby")) == ([ready], [3 - ready])
        assert workers("absent") == [places - ready]
        for expected in (["ready", "ready"], ["ready"]):
            pods.end_last()
            wait_until(lambda wanted=expected: states() == wanted, 20, f"the workers are {expected}")
        assert re.search(r"^tuft_worker_up{.*} 1$", page(), re.MULTILINE)
    finally:
        pods.kill()
        server.stop()


def test_a_service_called_tuft_would_set_the_port(volumes):
    """Why pods have enableServiceLinks: false."""
    objects = build("base")
    server = TuftServer(volumes.here("/var/lib/tuft"), volumes.moved(objects.config_text(), objects),
                        env={"TUFT_METRICS_TOKEN": SCRAPER, "TUFT_PORT": "tcp://10.0.0.1:10610"})
    server.arguments = []
    server.spawn()
    assert server.wait_exit() == 1
    assert "TUFT_PORT" in server.log, server.log
