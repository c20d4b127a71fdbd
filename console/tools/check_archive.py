"""Checks that the committed archive of the console is the one that dist.sha256 names, and as new as the sources.

The same as `node tools/pack.mjs --check`, for machines without Node.js. Ends with 1 and one line for each problem."""

import hashlib
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ["index.html", "package-lock.json", "package.json", "public", "src", "tsconfig.json", "vite.config.ts"]


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def hash_of_sources(root=ROOT):
    files = []
    for name in SOURCES:
        path = root / name
        files += [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    names = sorted(file.relative_to(root).as_posix() for file in files)
    hashed = hashlib.sha256()
    for name in names:
        if not name.endswith(".test.ts"):
            hashed.update(f"{name}\0{sha256((root / name).read_bytes())}\n".encode())
    return hashed.hexdigest()


def problems(root=ROOT):
    expected = {}
    for line in (root / "dist.sha256").read_text().splitlines():
        value, name = line.split()
        expected[name] = value
    found = []
    if expected.get("dist.tar.gz") != sha256((root / "dist.tar.gz").read_bytes()):
        found.append("console/dist.tar.gz is not the archive that console/dist.sha256 names")
    if expected.get("sources") != hash_of_sources(root):
        found.append("console/dist.tar.gz is older than the sources of the console: "
                     "run `npm ci && npm run pack` in console/ and commit both files")
    return found


def main():
    found = problems()
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
