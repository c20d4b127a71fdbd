"""Makes a virtual environment for each SDK version that the command line names.

  environments.py [VERSION...]

Instead of a version: "oldest", "newest" or "all" of versions.txt. The version of tests/requirements.txt uses .venv.
"""
import concurrent.futures
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = pathlib.Path(__file__).parent
# Below build/, which git ignores.
ENVIRONMENTS = ROOT / "build/sdk"


def all_versions():
    lines = (FOLDER / "versions.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def named(words):
    """Replaces the words for versions."""
    known = all_versions()
    of_word = {"oldest": known[:1], "newest": known[-1:], "all": known}
    return [version for word in words for version in of_word.get(word, [word])]


def program(version, name="python"):
    pinned = f"tinker=={version}" in (FOLDER.parent / "requirements.txt").read_text().split()
    return (ROOT / ".venv" if pinned else ENVIRONMENTS / version) / "bin" / name


def make(version):
    """Makes the environment, unless it is complete already."""
    folder = program(version).parents[1]
    stamp = folder / "complete"
    if folder.name == ".venv" or stamp.exists():
        return
    print(f"making {folder.relative_to(ROOT)} with tinker {version}", file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    subprocess.run([program(version, "pip"), "install", "--quiet", "--disable-pip-version-check",
                    "-c", FOLDER / "constraints.txt", f"tinker=={version}"], check=True)
    stamp.touch()


def make_all(versions):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(make, versions))


if __name__ == "__main__":
    make_all(named(sys.argv[1:]))
