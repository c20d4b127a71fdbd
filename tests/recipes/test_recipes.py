#!/usr/bin/env python3
"""Each recipe of CONTRIBUTING.md ("How to add ...") has a recorded diff of somebody who followed it: tests/recipes/NAME.patch,
where NAME is the recipe's title without its article and with '_'. The diff must still apply, touch the files that the recipe
names and no others, keep the layers and the catalogue of spans, and compile.

  test_recipes.py [--build FOLDER] [NAME...]      all recipes, or some; FOLDER has compile_commands.json
"""
import argparse
import concurrent.futures
import fnmatch
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
import compile_commands  # noqa: E402
PATCHES = pathlib.Path(__file__).resolve().parent
RECIPE = re.compile(r"^\*\*an? ([^*]+)\.\*\* (.*?)(?=\n\n)", re.M | re.S)
FILE = re.compile(r"`([^`]+)`(?: \(([^)]*)\))?", re.S)
# Too large for a recorded diff: the two back ends in the tree, which pass the same contract tests, are its examples.
WITHOUT_PATCH = {"engine back end"}
RENEW = """{patch} does not apply any more. To renew it:
  git worktree add --detach /tmp/recipe && cd /tmp/recipe
  git apply --reject --recount -C1 {patch}     # mend what the .rej files hold, and remove them
  git add -A && git diff --cached -U1 > {patch}
"""


def recipes():
    """{title: its text} in the order of CONTRIBUTING.md"""
    section = (ROOT / "CONTRIBUTING.md").read_text().split("\n## How to add")[1].split("\n## ")[0]
    return {title: text for title, text in RECIPE.findall(section + "\n\n")}


def files_of(recipe):
    """[(pattern of paths, remark)] of the recipe's list; <...> stands for any text."""
    listed = re.search(r"\*Files:\*(.*?)(?=\*Checked by:\*|$)", recipe, re.S)
    return [(re.sub(r"<[^>]*>", "*", path), remark or "") for path, remark in FILE.findall(listed[1])] if listed else []


def changes_of(patch):
    """{path: number of lines that it adds}"""
    added, path = {}, None
    for line in patch.read_text().splitlines():
        if line.startswith("diff --git "):
            path = line.split(" b/")[1]
            added[path] = 0
        elif line.startswith("+") and not line.startswith("+++ "):
            added[path] += 1
    return added


def wrong_files(recipe, patch):
    listed, changes = files_of(recipe), changes_of(patch)
    for path, lines in changes.items():
        remarks = [remark for pattern, remark in listed if fnmatch.fnmatchcase(path, pattern)]
        if not remarks:
            yield f"{path} is changed, and the recipe does not name it"
        elif lines > 1 and all(remark.startswith("one line") for remark in remarks):
            yield f"{path}: the recipe promises one line, the diff adds {lines}"
    for pattern, remark in listed:
        if not remark.startswith(("generated", "if ")) and not fnmatch.filter(changes, pattern):
            yield f"the recipe names {pattern}, and the diff does not touch it"


def copy_tree(to):
    listing = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    names = listing.stdout.splitlines() if listing.returncode == 0 else [
        path.relative_to(ROOT).as_posix() for path in ROOT.glob("*/**/*")
        if path.is_file() and path.relative_to(ROOT).parts[0] not in ("build", ".git", ".venv")]
    for name in names:
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, to / name)


def run(command, **options):
    """What a command that failed printed; None where it succeeded."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    return None if done.returncode == 0 else f"{shlex.join(map(str, command))}\n{done.stdout}"


def apply(patch, tree, *options):
    # The ceiling: in a temporary folder below a checkout git would look for the files there.
    return run(["git", "apply", "--recount", "-C1", *options, patch], cwd=tree,
               env={**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)})


def compile_command(path, tree, build, entries):
    """The command of the file, or of the one next to it, with the paths of the copy."""
    nearest = max(entries, key=lambda name: (name == path, len(os.path.commonpath([name, path])), name.endswith("_test.cc")))
    command = shlex.split(entries[nearest])
    del command[command.index("-o"):command.index("-o") + 2]
    moved = [argument.replace(str(build), "\0").replace(str(ROOT / nearest), str(tree / path)).replace(str(ROOT), str(tree))
             for argument in command]
    generated = ["-isystem", str(tree / "generated")]
    return [*moved[:1], "-fsyntax-only", *generated, *[argument.replace("\0", str(build)) for argument in moved[1:]]]


def compile_changes(changes, tree, build, entries):
    protos = [path.removeprefix("proto/") for path in changes if path.endswith(".proto")]
    (tree / "generated").mkdir(exist_ok=True)
    if protos:
        failed = run(["protoc", "-I", "proto", "--cpp_out=generated", "--grpc_out=generated",
                      f"--plugin=protoc-gen-grpc={shutil.which('grpc_cpp_plugin')}", *protos], cwd=tree)
        if failed:
            return [failed]
    commands = [compile_command(path, tree, build, entries) for path in changes if path.endswith(".cc")]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda command: run(command, cwd=build), commands))
    shutil.rmtree(tree / "generated")
    return [failed for failed in found if failed]


def check(patch, recipe, tree, build, entries):
    yield from wrong_files(recipe, patch)
    failed = apply(patch, tree)
    if failed:
        yield RENEW.format(patch=patch) + failed
        return
    layers = run([sys.executable, tree / "tests/layers/check_layers.py", "--root", tree])
    if layers:
        yield layers
    catalogue = [sys.executable, tree / "tests/telemetry/catalogue.py"]
    if any(path == "docs/telemetry.md" and remark.startswith("generated") for path, remark in files_of(recipe)):
        run([*catalogue, "--update"])
    spans = run([*catalogue, "--check"])
    if spans:
        yield spans
    yield from compile_changes(changes_of(patch), tree, build, entries)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    build = options.build.resolve()
    entries = {pathlib.Path(entry["file"]).relative_to(ROOT).as_posix(): entry["command"]
               for entry in compile_commands.entries(build) if "/proto/" not in entry["file"]}
    found, known = [], {title.replace(" ", "_"): text for title, text in recipes().items() if title not in WITHOUT_PATCH}
    for name in sorted(known.keys() ^ {patch.stem for patch in PATCHES.glob("*.patch")}):
        found.append(f"{name}: " + ("the recipe has no patch" if name in known else "the patch has no recipe"))
    chosen = [patch for patch in sorted(PATCHES.glob("*.patch")) if not options.names or patch.stem in options.names]
    for patch in chosen:
        with tempfile.TemporaryDirectory() as directory:
            tree = pathlib.Path(directory).resolve() / "tuft"
            copy_tree(tree)
            found += [f"{patch.stem}: {problem}" for problem in check(patch, known.get(patch.stem, ""), tree, build, entries)]
    print("\n".join(found) or f"recipes: {len(chosen)} diffs apply, touch what their recipes name, and compile")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
