"""Checks deploy/kubernetes/Dockerfile: its packages are those that the programs need."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("TUFT_BIN_DIR", ROOT / "build/release/bin"))
TEXT = re.sub(r"^#.*\n|\\\n", "", (ROOT / "deploy/kubernetes/Dockerfile").read_text(), flags=re.MULTILINE)
BUILD, FINAL = re.split(r"^(?=FROM )", TEXT, flags=re.MULTILINE)[1:]
# Of every Debian.
ESSENTIAL = {"libc6", "libgcc-s1"}


def packages():
    """Returns the packages of the final image."""
    installed = re.findall(r"apt-get install -y --no-install-recommends ([^&\n]*)", FINAL)
    return {package for one in installed for package in one.split()}


def output(*command):
    return subprocess.run([str(one) for one in command], capture_output=True, text=True, check=True).stdout


def is_bookworm():
    release = pathlib.Path("/etc/os-release")
    return shutil.which("dpkg") and release.exists() and "VERSION_CODENAME=bookworm" in release.read_text()


of_debian = pytest.mark.skipif(not is_bookworm(), reason="the image is Debian 12, and this machine is not")


def needed_libraries():
    """Returns the paths of the libraries that the programs name themselves."""
    found = {}
    for program in ("tuft", "tuft-worker"):
        if not (BIN / program).exists():
            pytest.skip(f"the programs are not built: {BIN}")
        names = re.findall(r"NEEDED\s+(\S+)", output("objdump", "-p", BIN / program))
        paths = dict(re.findall(r"(\S+) => (\S+)", output("ldd", BIN / program)))
        assert "not" not in paths.values()
        found |= {name: paths[name] for name in names if name in paths}
    return found


def owner(path):
    """Returns the package of a library. dpkg knows some by the path before /lib became a link to /usr/lib."""
    real = str(pathlib.Path(path).resolve())
    for one in (path, real, real.removeprefix("/usr"), "/usr" + real):
        asked = subprocess.run(["dpkg-query", "-S", one], capture_output=True, text=True)
        if asked.returncode == 0:
            return asked.stdout.split(":")[0]
    raise AssertionError(f"{path} belongs to no package; the image would not have it")


@of_debian
def test_the_image_has_the_libraries_of_the_programs_and_no_others():
    libraries = needed_libraries()
    if any(re.match(r"lib(asan|tsan|ubsan|torch|c10)", name) for name in libraries):
        pytest.skip(f"the image is of the preset release, and {BIN} is of another")
    needed = {owner(path) for path in libraries.values()}
    assert needed - ESSENTIAL == packages() - {"ca-certificates"}


@of_debian
def test_every_package_is_one_that_debian_has():
    sources = {}
    for line in output("apt-cache", "madison", *packages()).splitlines():
        package, _, source = [part.strip() for part in line.split("|")]
        sources.setdefault(package, set()).update(re.findall(r"bookworm\S*(?=/main)", source))
    if not any(sources.values()):
        pytest.skip("apt knows no packages (apt-get update)")
    assert set(sources) == packages()
    backports = {package for package, found in sources.items() if found == {"bookworm-backports"}}
    assert backports == {"opentelemetry-cpp"}, "the comment of the Dockerfile names another"


def test_what_is_copied_is_what_the_pods_start():
    base = (ROOT / "deploy/kubernetes/base/server.yaml").read_text() + (ROOT / "deploy/kubernetes/base/worker.yaml").read_text()
    copied = re.search(r"^COPY --from=build (.*) (\S+)/$", FINAL, re.MULTILINE)
    programs = {f"{copied.group(2)}/{pathlib.Path(one).name}" for one in copied.group(1).split()}
    assert programs == set(re.findall(r"command: \[(.*)\]", base)) == {"/usr/local/bin/tuft", "/usr/local/bin/tuft-worker"}
    user = re.search(r"^USER (\d+):(\d+)$", FINAL, re.MULTILINE)
    assert f"runAsUser: {user.group(1)}" in base and f"runAsGroup: {user.group(2)}" in base


def test_the_build_uses_the_words_of_dev():
    assert re.search(r"\./dev build tuft tuft-worker$", BUILD, re.MULTILINE)
    ignored = (ROOT / "deploy/kubernetes/Dockerfile.dockerignore").read_text().split()
    assert {"build", ".venv*"} <= set(ignored)
