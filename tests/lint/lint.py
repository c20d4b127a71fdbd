#!/usr/bin/env python3
"""Checks the format of all our sources and runs clang-tidy on them. Results of checked files are cached by the hash of
their text, headers and rules ($XDG_CACHE_HOME/tuft-lint), so that a second run takes seconds, in other clones too."""
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
sys.path.insert(0, str(ROOT / "tests/support"))
import compile_commands  # noqa: E402

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
TIDY_ARGUMENTS = ["--quiet", "--extra-arg=-Wthread-safety", "--extra-arg=-Wno-unknown-warning-option",
                  "--extra-arg=-Wno-unused-command-line-argument"]
# clang-tidy requires at least one check. For tests, only clang's own warnings count, such as those of thread safety.
TEST_CHECKS = "--checks=-*,modernize-use-override"


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
    """Returns the hash of a source and all files of ours that it includes, directly or indirectly."""

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


def commands_for_clang(build):
    """A folder with the compile commands as clang reads them, and the sources in them. Precompiled headers are g++'s; without
    them, each source is read with the headers that it includes itself."""
    entries = compile_commands.entries(build)
    folder = build / "lint"
    folder.mkdir(exist_ok=True)
    (folder / "compile_commands.json").write_text(json.dumps(entries))
    return folder, {entry["file"] for entry in entries}


def is_test(source):
    return not {"tests", "testing", "fuzz", "bench"}.isdisjoint(source.relative_to(ROOT).parts)


def tidy(source, build):
    checks = [TEST_CHECKS] if is_test(source) else []
    run = subprocess.run(["clang-tidy-16", "-p", str(build), *TIDY_ARGUMENTS, *checks, str(source)],
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

    commands, compiled = commands_for_clang(options.build)
    sources = [path for path in tracked("*.cc") if str(path) in compiled]
    if options.files:
        chosen = {str(pathlib.Path(name).resolve()) for name in options.files}
        sources = [path for path in sources if str(path) in chosen]
    version = subprocess.run(["clang-tidy-16", "--version"], capture_output=True, text=True, check=True).stdout
    rules = (ROOT / ".clang-tidy").read_text() + " ".join([*TIDY_ARGUMENTS, TEST_CHECKS]) + version
    fingerprints = Fingerprints(options.build / "proto")
    CACHE.mkdir(parents=True, exist_ok=True)
    stamps = {path: CACHE / fingerprints.of(path, rules) for path in sources}
    todo = [path for path in sources if not stamps[path].exists()]
    print(f"clang-tidy: {len(todo)} of {len(sources)} files changed", flush=True)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for path, (code, output) in zip(todo, pool.map(lambda path: tidy(path, commands), todo)):
            if code == 0:
                stamps[path].touch()
            else:
                ok = False
                print(output, flush=True)
    print("lint passed" if ok else "lint failed")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
