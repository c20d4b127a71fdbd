#!/usr/bin/env python3
"""Reads three documents as their readers would, with tuft in the place of their servers, against the real back ends.

  run.py [--write] [DOCUMENT...]

Each step is run; one that fails ends the run with status 1. --write replaces the pages in docs/walkthroughs."""

import argparse
import importlib
import os
import pathlib
import shutil
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "support"), str(HERE.parent / "e2e"), str(HERE)]

import isolation  # noqa: E402

DOCUMENTS = {
    "tuft": "TuFT: observability",
    "fastdeploy": "FastDeploy: tracing",
    "transformers": "Transformers: metrics of continuous batching",
}


def walk(name, bin_folder):
    """Returns the page of a document after its last step."""
    from transcript import READER, Page

    for used in ("home", "pictures"):
        shutil.rmtree(READER / used, ignore_errors=True)
    page = Page(name, DOCUMENTS[name], bin_folder)
    try:
        importlib.import_module(f"document_{name}").walk(page)
    finally:
        page.stop_all()
        keep(page)
    return page


def keep(page):
    """Leaves the page and its pictures in .cache/walkthroughs, also if a step fails."""
    from transcript import READER, ROOT

    kept = ROOT / ".cache/walkthroughs"
    kept.mkdir(parents=True, exist_ok=True)
    (kept / f"{page.name}.md").write_text("\n\n".join(page.parts))
    for path in [*READER.glob("pictures/*.png"), *READER.glob("*.log")]:
        shutil.copy(path, kept)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="replace the pages")
    parser.add_argument("documents", nargs="*", choices=[*DOCUMENTS, []], help="all, if none is named")
    arguments = parser.parse_args()
    isolation.enter()
    os.environ["NO_PROXY"] = "127.0.0.1,localhost"

    import back_ends
    import readme

    bin_folder = pathlib.Path(os.environ["TUFT_BIN_DIR"]).resolve()
    back_ends.put_on_path()
    for name in arguments.documents or DOCUMENTS:
        try:
            page = walk(name, bin_folder)
        except AssertionError as failure:
            sys.exit(f"{name}: a step fails: {failure}")
        page.text()
        if arguments.write:
            page.write()
    # It says when and with what all of them were run.
    if arguments.write and not arguments.documents:
        readme.write(bin_folder)


if __name__ == "__main__":
    main()
