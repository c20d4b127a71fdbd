"""Makes .venv-cookbook, the environment of the recipes: `environment.py`.

tinker-cookbook is installed without its dependencies, because it asks for a version of tml-renderers that PyPI does not
have; requirements.txt names those that the recipes use, and pins all.
"""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = pathlib.Path(__file__).resolve().parent
ENVIRONMENT = ROOT / ".venv-cookbook"
PYTHON = ENVIRONMENT / "bin/python"
COOKBOOK = "tinker-cookbook==0.6.1"


def make():
    wanted = f"{COOKBOOK}\n{(FOLDER / 'requirements.txt').read_text()}"
    stamp = ENVIRONMENT / "complete"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"making {ENVIRONMENT.name} with {COOKBOOK} (downloads about 3 GB, most of it torch)", file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=True)
    pip = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-r", FOLDER / "requirements.txt"], check=True)
    subprocess.run([*pip, "--no-deps", COOKBOOK], check=True)
    stamp.write_text(wanted)


if __name__ == "__main__":
    make()
