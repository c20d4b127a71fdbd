#!/usr/bin/env python3
"""Checks the format of all our sources and runs clang-tidy on them. Results of checked files are cached by the hash of
their text, headers and rules ($XDG_CACHE_HOME/tuft-lint), so that a second run takes seconds, in other clones too. Sources that
the build compiles in groups are checked in groups, too, because most of the time is spent on the headers that they share; where
a group does not pass, each of its files is checked alone, and that counts."""
import argparse
import collections
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
GROUP = 16  # files
TARGET_OF_GROUP = re.compile(r" -o (\S+)/Unity/")

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


def groups_of(entries, size):
    """Returns lists of compile commands: of one target, tests or none, and not more than `size`."""
    grouped, alone = collections.defaultdict(list), []
    for entry in entries:
        if target := TARGET_OF_GROUP.search(entry["command"]):
            grouped[target[1], is_test(pathlib.Path(entry["file"]))].append(entry)
        else:
            alone.append([entry])
    return [some[start:start + size] for some in grouped.values() for start in range(0, len(some), size)] + alone


def merged(group, source):
    """Writes the text of all files of a group to `source`, and returns the command that compiles it."""
    source.write_text("\n".join(pathlib.Path(entry["file"]).read_text() for entry in group))
    first = group[0]
    return {**first, "file": str(source), "command": first["command"].replace(first["file"], str(source))}


def is_test(source):
    return not {"tests", "testing", "fuzz", "bench"}.isdisjoint(source.relative_to(ROOT).parts)


def tidy(source, checks, folder):
    """Returns what clang-tidy finds in a source; nothing: it passes."""
    run = subprocess.run(["clang-tidy-16", "-p", str(folder), *TIDY_ARGUMENTS, *checks, str(source)],
                         capture_output=True, text=True)
    return run.stdout + run.stderr if run.returncode else ""


def tidy_group(group, source, folder):
    """Returns what clang-tidy finds in each file of a group, by the file's name. `source` holds the text of all."""
    files = [entry["file"] for entry in group]
    checks = [TEST_CHECKS] if is_test(pathlib.Path(files[0])) else []
    if len(files) > 1 and not tidy(source, checks, folder):
        return dict.fromkeys(files, "")
    return {file: tidy(file, checks, folder) for file in files}


def check(entries, size, jobs, folder):
    """Yields each file with what clang-tidy finds in it. Precompiled headers are g++'s; without them, each source is read with
    the headers that it includes itself."""
    folder.mkdir(exist_ok=True)
    groups = [(group, folder / f"group_{number}.cc") for number, group in enumerate(groups_of(entries, size))]
    commands = [*entries, *(merged(*pair) for pair in groups if len(pair[0]) > 1)]
    (folder / "compile_commands.json").write_text(json.dumps(commands))
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for found in pool.map(lambda pair: tidy_group(*pair, folder), groups):
            yield from found.items()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("files", nargs="*", help="only these, each alone")
    options = parser.parse_args()
    build = options.build.resolve()

    headers_and_sources = tracked("*.h", "*.cc")
    ok = check_format(headers_and_sources)

    commands = {entry["file"]: entry for entry in compile_commands.entries(build)}
    sources = [path for path in tracked("*.cc") if str(path) in commands]
    if options.files:
        chosen = {str(pathlib.Path(name).resolve()) for name in options.files}
        sources = [path for path in sources if str(path) in chosen]
    version = subprocess.run(["clang-tidy-16", "--version"], capture_output=True, text=True, check=True).stdout
    rules = (ROOT / ".clang-tidy").read_text() + " ".join([*TIDY_ARGUMENTS, TEST_CHECKS]) + version
    fingerprints = Fingerprints(build / "proto")
    CACHE.mkdir(parents=True, exist_ok=True)
    stamps = {str(path): CACHE / fingerprints.of(path, rules) for path in sources}
    todo = [commands[path] for path, stamp in stamps.items() if not stamp.exists()]
    print(f"clang-tidy: {len(todo)} of {len(sources)} files changed", flush=True)
    for path, found in check(todo, 1 if options.files else GROUP, options.jobs, build / "lint"):
        if found:
            ok = False
            print(found, flush=True)
        else:
            stamps[path].touch()
    print("lint passed" if ok else "lint failed")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
