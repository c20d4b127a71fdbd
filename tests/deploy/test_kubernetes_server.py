"""Gives the objects of deploy/kubernetes to a real API server, where kube-apiserver and etcd are installed.

Debian has etcd (etcd-server). kube-apiserver is built in four minutes on two cores, in a Go module that requires
k8s.io/kubernetes and replaces each of its modules of `staging` by the version of the same number (v1.32.4: v0.32.4):

    go build -o ~/bin/kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver
"""

import json
import shutil
import subprocess

import pytest
from tuft_server import free_port, wait_until

from kubernetes_objects import FOLDERS, KUBERNETES, build

PROGRAMS = ["kubectl", "etcd", "kube-apiserver", "openssl"]
MISSING = [name for name in PROGRAMS if not shutil.which(name)]

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


class ApiServer:
    """kube-apiserver and etcd, without a controller or a node: objects are checked and kept, and nothing happens."""

    def __init__(self, folder):
        self.folder, self.port, self.processes = folder, free_port(), []
        subprocess.run(["openssl", "genrsa", "-out", "key", "2048"], cwd=folder, check=True, capture_output=True)
        (folder / "tokens").write_text("token,admin,1,system:masters\n")
        clients, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self.spawn("etcd", "--data-dir=etcd.data", f"--listen-client-urls={clients}", f"--advertise-client-urls={clients}",
                   f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}",
                   f"--initial-cluster=default={peers}")
        # Without a controller nobody makes the service accounts that this plug-in asks for.
        self.spawn("kube-apiserver", f"--etcd-servers={clients}", f"--secure-port={self.port}", "--bind-address=127.0.0.1",
                   "--cert-dir=certificates", "--service-account-issuer=https://localhost",
                   "--service-account-key-file=key", "--service-account-signing-key-file=key", "--token-auth-file=tokens",
                   "--service-cluster-ip-range=10.96.0.0/16", "--disable-admission-plugins=ServiceAccount")
        cluster = {"server": f"https://127.0.0.1:{self.port}", "insecure-skip-tls-verify": True}
        (folder / "config").write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "here", "cluster": cluster}], "users": [{"name": "admin", "user": {"token": "token"}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "admin"}}]}))
        wait_until(lambda: self.kubectl("get", "--raw", "/readyz").returncode == 0, 45, "the API server is ready")

    def spawn(self, program, *arguments):
        with (self.folder / f"{program}.log").open("w") as log:
            command = [program, *arguments]
            self.processes.append(subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT))

    def kubectl(self, *arguments, given=None):
        return subprocess.run(["kubectl", f"--kubeconfig={self.folder / 'config'}", *map(str, arguments)], input=given,
                              capture_output=True, text=True)

    def end(self):
        for process in reversed(self.processes):
            process.terminate()
            process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    one = ApiServer(tmp_path_factory.mktemp("api"))
    yield one
    one.end()


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_is_accepted(server, folder):
    objects = build(folder)
    names = [one["metadata"]["name"] for one in objects.of("Namespace")]
    where = []
    if not names:
        name = folder.replace("/", "-")
        where = [f"--namespace={name}"]
        assert server.kubectl("create", "namespace", name).returncode == 0
    applied = server.kubectl(*where, "apply", "-k", KUBERNETES / folder)
    # Warnings, such as those about values that have no effect, are written to stderr.
    assert applied.returncode == 0 and applied.stderr == "", applied.stderr
    assert len(applied.stdout.splitlines()) == len(objects)


@pytest.mark.parametrize("name", ["tuft-server", "tuft-worker"])
def test_the_pods_may_run_in_a_restricted_namespace(server, name):
    namespace = json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": f"of-{name}", "labels": build("overlays/example").of("Namespace")[0]["metadata"]["labels"]}})
    assert server.kubectl("apply", "-f", "-", given=namespace).returncode == 0
    pod = build("base").pod(name)
    known = {one["name"] for one in pod["volumes"]}
    pod["volumes"] += [{"name": one["name"], "emptyDir": {}} for one in pod["containers"][0]["volumeMounts"]
                       if one["name"] not in known]

    def make():
        text = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod})
        return server.kubectl(f"--namespace=of-{name}", "apply", "--dry-run=server", "-f", "-", given=text)

    made = make()
    assert made.returncode == 0, made.stderr
    del pod["containers"][0]["securityContext"]["capabilities"]
    assert 'violates PodSecurity "restricted' in make().stderr
