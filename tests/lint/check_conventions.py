#!/usr/bin/env python3
"""Checks three rules of CONTRIBUTING.md: the form of commit messages (since BASE), no sleep in a test to wait for
something, and no tracked symbolic link (a link of one checkout, such as .venv, breaks all others)."""
import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BASE = "fd85a9951e6dd06bab77b18e7520b6f1a36049a9"  # messages of older commits are not checked
SUBJECT = re.compile(r"[a-z][\w./, -]*: \S")
SUBJECT_MAX = 72
# wait_until() polls. The others kill at random moments, which is what they test.
MAY_SLEEP = ("tests/support/tuft_server.py", "tests/system/test_persistence.py", "tests/fault/")


def git(root, *arguments):
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)


def commits(root, base):
    """Returns (hash, message) of each commit since `base` without merges; None if the history does not contain it."""
    if git(root, "merge-base", "--is-ancestor", base, "HEAD").returncode != 0:
        return None
    log = git(root, "log", "--no-merges", "--format=%H%x00%B%x01", f"{base}..HEAD").stdout
    found = [tuple(entry.strip().split("\0")) for entry in log.split("\x01") if entry.strip()]
    return [(commit[:12], message) for commit, message in found]


def problems_of_message(message):
    subject, _, body = message.strip().partition("\n")
    if not SUBJECT.match(subject):
        yield f"the subject is not `area: text`: {subject}"
    if len(subject) > SUBJECT_MAX:
        yield f"the subject has {len(subject)} characters, over {SUBJECT_MAX}: {subject}"
    if not body.startswith("\n") or not body.strip():
        yield f"there is no body that says what and why: {subject}"


def sleeps(root):
    for name in git(root, "ls-files", "tests/*.py").stdout.split():
        path = root / name
        if path.exists() and not name.startswith(MAY_SLEEP):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if re.search(r"\bsleep\(", line.partition("#")[0]):
                    yield f"{name}:{number}: a test sleeps; wait for a condition (wait_until)"


def links(root):
    for line in git(root, "ls-files", "--stage").stdout.splitlines():
        mode, _, _, name = line.split(maxsplit=3)
        if mode == "120000":
            yield f"{name}: a symbolic link is tracked; remove it from the index"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    parser.add_argument("--base", default=BASE)
    options = parser.parse_args()
    found, since = [*sleeps(options.root), *links(options.root)], commits(options.root, options.base)
    if since is None:
        print(f"commit messages are not checked: the history does not reach back to {options.base[:7]} (a shallow clone?)")
    for commit, message in since or []:
        found += [f"{commit}: {problem}" for problem in problems_of_message(message)]
    print("\n".join(found) or f"conventions: {len(since or [])} commit messages, no sleep in a test, no symbolic link")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
