"""A walkthrough's page: what a reader types, what comes back, and pictures of what the reader sees."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import browser
from tuft_server import clean_environment, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs/walkthroughs"
READER = pathlib.Path("/tmp/reader")  # the directory of the reader's own files
LINE_MAX = 280
COMMAND_SECONDS, STOP_SECONDS = 600, 30


def shortened(text, head, tail):
    """Returns the first and the last lines of a text, long lines cut."""
    lines = text.replace(str(ROOT), "~/tuft").rstrip().splitlines()
    if len(lines) > head + tail:
        left_out = len(lines) - head - tail
        lines = [*lines[:head], f"... ({left_out} lines left out)", *(lines[-tail:] if tail else [])]
    return "\n".join(line if len(line) <= LINE_MAX else line[:LINE_MAX] + " ..." for line in map(str.rstrip, lines))


class Page:
    """One document. A step that fails raises AssertionError; nothing after it runs."""

    def __init__(self, name, title, bin_folder):
        self.name, self.parts, self.running, self.environment = name, [f"# {title}"], [], {}
        self.path_variable = f"{bin_folder}:{ROOT}/.venv/bin:/tmp/bin:{os.environ['PATH']}"
        self.pictures = []
        READER.mkdir(exist_ok=True)

    # ---- what the page says

    def step(self, title):
        print(f"{self.name}: {title}", flush=True)
        self.parts.append(f"## {title}")

    def say(self, text):
        self.parts.append(" ".join(text.split()) if "\n|" not in text and "\n-" not in text else text.strip())

    def code(self, language, text):
        self.parts.append(f"```{language}\n{text.rstrip()}\n```")

    def file(self, name, content, language="yaml"):
        """Writes one of the reader's files and shows it."""
        (READER / name).write_text(content)
        self.parts.append(f"`{name}`:")
        self.code(language, content)

    # ---- what the reader does

    def environ(self, **variables):
        return {
            **clean_environment(),
            "PATH": self.path_variable,
            "HF_HUB_OFFLINE": "1",
            **self.environment,
            **variables,
        }

    def run(self, command, head=12, tail=3, status=0, expect=(), show=True):
        """Runs a command in the checkout and shows it with its output. `expect`: regular expressions of the output."""
        ran = subprocess.run(
            ["bash", "-c", command],
            cwd=ROOT,
            env=self.environ(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
        )
        assert ran.returncode == status, f"{command}\nended with {ran.returncode}:\n{ran.stdout[-4000:]}"
        for one in [expect] if isinstance(expect, str) else expect:
            assert re.search(one, ran.stdout), f"{command}\ndoes not print {one!r} but:\n{ran.stdout[-4000:]}"
        if show:
            self.code("console", f"$ {command}\n{shortened(ran.stdout, head, tail)}")
        return ran.stdout

    def start(self, name, command, ready, lines=None, quiet=False):
        """Starts a program that keeps running, waits until `ready()`, and shows the lines of its log that match."""
        log = READER / f"{name}.log"
        with open(log, "w") as out:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=ROOT,
                env=self.environ(),
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.running.append((name, process))

        def up():
            assert process.poll() is None, f"{command}\nended:\n{log.read_text()[-4000:]}"
            return ready()

        wait_until(up, 120, f"{name} is ready")
        if not quiet:
            kept = [line for line in log.read_text().splitlines() if lines and re.search(lines, line)]
            self.code("console", f"$ {command} &\n{shortened(chr(10).join(kept), 30, 0)}".rstrip())
        return log

    def stop(self, name):
        """Ends a program as a reader does with Ctrl-C."""
        (found,) = [one for one in self.running if one[0] == name]
        self.running.remove(found)
        process = found[1]
        # A loop of a shell and what it runs are one group; of other programs only the first process gets the signal.
        os.killpg(process.pid, signal.SIGTERM) if name in ("load", "long") else process.terminate()
        try:
            process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def stop_all(self):
        for name, _ in reversed(list(self.running)):
            self.stop(name)

    def see(self, url, picture, what, expect=(), window=(browser.WIDTH, browser.HEIGHT), seconds=15):
        """Opens an address in the browser. Each text of `expect` must be on the page that the picture shows, within a minute."""
        missing, name = [], f"{self.name}-{picture}.png"
        path = READER / "pictures" / name
        path.parent.mkdir(exist_ok=True)

        def shows():
            content = browser.visit(url, path, window=window, seconds=seconds)
            missing[:] = [one for one in expect if not re.search(one, content)]
            return not missing

        try:
            wait_until(shows, 60, "the page shows what it must")
        except AssertionError:
            raise AssertionError(f"{url} does not show {missing}") from None
        size = path.stat().st_size
        assert size < browser.PNG_BYTES_MAX, f"{name} has {size} bytes"
        print(f"{self.name}:   {name}, {size} bytes", flush=True)
        self.pictures.append(name)
        self.parts.append(f"<{url}>")
        self.parts.append(f"![{what}](images/{name})")

    # ---- the end

    def text(self):
        whole = "\n\n".join(self.parts) + "\n"
        assert len(whole.splitlines()) < 500, f"{self.name}: {len(whole.splitlines())} lines"
        return whole

    def write(self):
        images = FOLDER / "images"
        images.mkdir(parents=True, exist_ok=True)
        for old in images.glob(f"{self.name}-*.png"):
            old.unlink()
        for name in self.pictures:
            shutil.copy(READER / "pictures" / name, images / name)
        (FOLDER / f"{self.name}.md").write_text(self.text())


def now():
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
