"""The virtual environments of the peers, one for each requirements-<name>.txt in this directory. `./dev bench --peers`
makes them in build/peers/<name>, where later runs find them."""
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
HOME = HERE.parents[1] / "build" / "peers"


def names(requirements=HERE):
    return sorted(path.stem.removeprefix("requirements-") for path in requirements.glob("requirements-*.txt"))


def make(say, requirements=HERE, home=HOME):
    """Makes the environments that are missing or older than their requirements. Returns the errors by name; an error
    does not stop the others."""
    errors, found = {}, names(requirements)
    for number, name in enumerate(found, 1):
        wanted, place = requirements / f"requirements-{name}.txt", home / name
        stamp = place / "requirements.txt"
        if stamp.exists() and stamp.read_text() == wanted.read_text():
            continue
        say(f"peer environment {number} of {len(found)}: {name}; downloads can take minutes")
        shutil.rmtree(place, ignore_errors=True)
        try:
            run(sys.executable, "-m", "venv", place)
            run(place / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", "-r", wanted)
        except (RuntimeError, OSError) as error:
            errors[name] = str(error)
            say(f"peer environment {name} failed and is left out: {error}")
            shutil.rmtree(place, ignore_errors=True)
            continue
        shutil.copy(wanted, stamp)
    return errors


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {' '.join(done.stderr.split())[-600:]}")


def program(name, file):
    found = HOME / name / "bin" / file
    return str(found) if (HOME / name / "requirements.txt").exists() else None


def python(options, name):
    """Returns the interpreter for a peer, or None: that of --python, else that of its environment."""
    return options.python or program(name, "python")


def llama_python(options):
    return options.llama_python or program("llamacpp", "python")


def tuft(options):
    """Returns TuFT's own program."""
    return options.tuft or program("tuft", "tuft")


def why_missing(options, name):
    error = options.peer_errors.get(name)
    return f"its environment could not be made ({error})" if error else "./dev bench --peers makes its environment"
