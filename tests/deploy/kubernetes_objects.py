"""What the files of deploy/kubernetes make, for their tests."""

import functools
import pathlib
import shutil
import subprocess

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
KUBERNETES = ROOT / "deploy/kubernetes"
FOLDERS = ["base", *sorted(f"overlays/{path.parent.name}" for path in KUBERNETES.glob("overlays/*/kustomization.yaml"))]


class Objects(list):
    """The objects of a folder."""

    def of(self, kind):
        return [one for one in self if one["kind"] == kind]

    def named(self, kind, name):
        (found,) = [one for one in self.of(kind) if one["metadata"]["name"] == name]
        return found

    def pod(self, name):
        """Returns the specification of the pods of a StatefulSet."""
        return self.named("StatefulSet", name)["spec"]["template"]["spec"]

    def container(self, name):
        (one,) = self.pod(name)["containers"]
        return one

    def labels(self, name):
        return self.named("StatefulSet", name)["spec"]["template"]["metadata"]["labels"]

    def config_text(self):
        (config,) = self.of("ConfigMap")
        return config["data"]["tuft.yaml"]

    def config(self):
        return yaml.safe_load(self.config_text())

    def flags(self):
        """Returns the flags of a worker."""
        return dict(argument.removeprefix("--").split("=", 1) for argument in self.container("tuft-worker")["args"])


@functools.cache
def _text(folder):
    ran = subprocess.run(["kubectl", "kustomize", KUBERNETES / folder], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def build(folder):
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not installed (https://kubernetes.io/docs/tasks/tools)")
    return Objects(yaml.safe_load_all(_text(folder)))
