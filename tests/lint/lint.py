#!/usr/bin/env python3
"""Format and clang-tidy over every source of ours. What passed is remembered by the hash of the file's text, headers and
rules ($XDG_CACHE_HOME/tuft-lint), so that a second run costs seconds, in another clone too."""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
TIDY_ARGUMENTS = ["--quiet", "--extra-arg=-Wthread-safety", "--extra-arg=-Wno-unknown-warning-option",
                  "--extra-arg=-Wno-unused-command-line-argument"]


CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tuft-lint"


def tracked(*patterns):
    listing = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / line for line in listing.stdout.split() if (ROOT / line).exists()]


def check_format(files):
    bad = []
    for start in range(0, len(files), 50):
        run = subprocess.run(["clang-format-16", "--dry-run", "-Werror", *map(str, files[start:start + 50])],
                             capture_output=True, text=True)
        bad += re.findall(r"^(\S+?):\d+:\d+: error", run.stderr, re.M)
    for name in sorted(set(bad)):
        print(f"format: {name} (mend it with ./dev fmt)")
    return not bad


class Fingerprints:
    """Hash of a source with everything of ours that it includes, directly or not."""

    def __init__(self, generated):
        self.generated = generated
        self.text = {}

    def read(self, path):
        if path not in self.text:
            self.text[path] = path.read_text(errors="replace")
        return self.text[path]

    def resolve(self, name):
        for base in (ROOT / "src", self.generated, ROOT):
            if (base / name).exists():
                return base / name
        return None

    def of(self, source, rules):
        seen, todo = set(), [source]
        while todo:
            path = todo.pop()
            if path in seen:
                continue
            seen.add(path)
            todo += [found for name in INCLUDE.findall(self.read(path)) if (found := self.resolve(name))]
        digest = hashlib.sha256(rules.encode())
        for text in sorted(self.read(path) for path in seen):
            digest.update(text.encode())
        return digest.hexdigest()


def tidy(source, build):
    run = subprocess.run(["clang-tidy-16", "-p", str(build), *TIDY_ARGUMENTS, str(source)],
                         capture_output=True, text=True)
    return run.returncode, run.stdout + ("" if run.returncode == 0 else run.stderr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("files", nargs="*", help="only these")
    options = parser.parse_args()

    headers_and_sources = tracked("*.h", "*.cc")
    ok = check_format(headers_and_sources)

    compiled = {entry["file"] for entry in json.loads((options.build / "compile_commands.json").read_text())}
    sources = [path for path in tracked("*.cc") if str(path) in compiled]
    if options.files:
        chosen = {str(pathlib.Path(name).resolve()) for name in options.files}
        sources = [path for path in sources if str(path) in chosen]
    version = subprocess.run(["clang-tidy-16", "--version"], capture_output=True, text=True, check=True).stdout
    rules = (ROOT / ".clang-tidy").read_text() + " ".join(TIDY_ARGUMENTS) + version
    fingerprints = Fingerprints(options.build / "proto")
    CACHE.mkdir(parents=True, exist_ok=True)
    stamps = {path: CACHE / fingerprints.of(path, rules) for path in sources}
    todo = [path for path in sources if not stamps[path].exists()]
    print(f"clang-tidy: {len(todo)} of {len(sources)} files changed", flush=True)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for path, (code, output) in zip(todo, pool.map(lambda path: tidy(path, options.build), todo)):
            if code == 0:
                stamps[path].touch()
            else:
                ok = False
                print(output, flush=True)
    print("lint passed" if ok else "lint failed")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
