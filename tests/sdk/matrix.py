"""Drives every feature of every SDK version against a server, and writes docs/compatibility.md.

  matrix.py [--write] [--only TEXT] [VERSION...]

Without versions: all of versions.txt. --write replaces the page, which needs all versions and features; otherwise the
outcomes are compared with it. A feature that fails, in any version, fails the matrix.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "support"))

import environments  # noqa: E402
import tuft_server  # noqa: E402

PAGE = environments.ROOT / "docs/compatibility.md"
SIGNS = {"works": "yes", "refused": "refused", "not asked": "-", "fails": "FAILS"}
HEAD = """# Compatibility with the Tinker SDK

Each version of the SDK was installed from PyPI, unmodified, in an environment of its own, and called every feature below
against a server of its own. `./dev e2e sdk` repeats that and writes this page.

- **yes**: the call did what the SDK documents, as far as its answer shows it.
- **refused**: the server answered with an error that names what it refuses. Nothing was ignored.
- **-**: this version of the SDK does not have the call or the argument.

SDKs before 0.28 reject a whole list that has a checkpoint of the type `external` (`save_weights_external`). The server leaves
such checkpoints out of the lists that these SDKs get, which it knows by the version that they send.

Fields that the server does not know, of JSON or protobuf, are refused by name or number where ignoring them could change a
result or what is kept: in every training request, `asample`, `create_sampling_session`, `join_sampling_session`,
`retrieve_futures`, `cancel_future`, `copy_weights`, `sessions/search`, `unload_model` and the requests that change a session's
project or a checkpoint's time to live. They are ignored where they only describe the client or ask for an answer that is the
same without them: in `create_session`, `session_heartbeat`, `sessions/{id}/finish`, `client/config`, `telemetry`, `get_info` and
`retrieve_future`.

`create_custom_loss` of 0.38 needs PyTorch, which these environments do not have. It is run, with its graph made by torch.fx, by
`tests/system/test_custom_losses.py`, which says so when it skips for want of PyTorch.

What the SDK documents and the server understands differently is described in [losses.md](losses.md),
[optimizers.md](optimizers.md) and [sampling.md](sampling.md).
"""


def drive(server, version, names=(), seconds=600):
    """Returns the outcomes of the features, in their order, as dictionaries."""
    run = subprocess.run(
        [environments.program(version), "-W", "ignore", FOLDER / "features.py", "--url", server.url, "--key",
         tuft_server.ALICE, "--model", tuft_server.MODEL, "--cli", environments.program(version, "tinker"), *names],
        capture_output=True, text=True, timeout=seconds,
        env={**tuft_server.clean_environment(), "HF_HUB_OFFLINE": "1", "TINKER_TELEMETRY": "0",
             "PYTHONPATH": str(FOLDER.parent / "support")})
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith('{"group"')]
    if run.returncode != 0 or not lines:
        raise RuntimeError(f"the features of {version} ended with {run.returncode}: {run.stderr[-3000:]}")
    return lines


def start(folder):
    model = tuft_server.init_model(folder / "tiny", "--family", "qwen3", "--size", "tiny", "--seed", "7")
    telemetry = {"enabled": True, "protocol": "file", "file_path": str(folder / "otlp.jsonl")}  # a trace needs spans
    return tuft_server.TuftServer(folder / "home", tuft_server.configuration(model, telemetry=telemetry))


def page(outcomes):
    """`outcomes`: by version, the lines of drive()."""
    versions = list(outcomes)
    text = HEAD
    group = None
    for row, first in enumerate(outcomes[versions[0]]):
        if first["group"] != group:
            group = first["group"]
            text += f"\n## {group}\n\n| | {' | '.join(versions)} |\n|---|{'---|' * len(versions)}\n"
        signs = [SIGNS[outcomes[version][row]["outcome"]] for version in versions]
        text += f"| {first['feature']} | {' | '.join(signs)} |\n"
    return text


def signs_on_page(version):
    """Returns the signs of a version's column, by feature."""
    found, column = {}, None
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| | "):
            column = cells.index(version) if version in cells else None
        elif re.match(r"\| [^|-]", line) and column is not None:
            found[cells[0]] = cells[column]
    return found


def differences(version, lines):
    """Returns what differs from the page, one line for each feature."""
    signs = signs_on_page(version)
    return [f"{version}: {one['group']}, {one['feature']}: {one['outcome']}, on the page: {signs.get(one['feature'])}\n"
            f"{one['detail']}" for one in lines if SIGNS[one["outcome"]] != signs.get(one["feature"])]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", action="append", default=[], help="only features whose name contains this")
    parser.add_argument("versions", nargs="*")
    arguments = parser.parse_args()
    versions = environments.named(arguments.versions or ["all"])
    if arguments.write and (arguments.only or versions != environments.all_versions()):
        parser.error("--write needs every version and every feature")
    environments.make_all(versions)
    outcomes, bad = {}, []
    for version in versions:
        # A server each, because older SDKs reject lists with kinds of checkpoints that newer ones have made.
        with tempfile.TemporaryDirectory() as folder, start(pathlib.Path(folder)) as server:
            begin = time.monotonic()
            outcomes[version] = drive(server, version, arguments.only)
        counts = {sign: sum(one["outcome"] == sign for one in outcomes[version]) for sign in SIGNS}
        print(f"tinker {version}: {', '.join(f'{count} {sign}' for sign, count in counts.items() if count)}, "
              f"{time.monotonic() - begin:.0f} s", flush=True)
        for one in outcomes[version]:
            if one["outcome"] in ("fails", "refused"):
                print(f"  {one['outcome']}: {one['group']}, {one['feature']}: {one['detail']}")
        bad += [one for one in outcomes[version] if one["outcome"] == "fails"]
        if not arguments.write:
            bad += differences(version, outcomes[version])
    if arguments.write and not bad:
        PAGE.write_text(page(outcomes))
        print(f"wrote {PAGE.relative_to(environments.ROOT)}")
    for line in bad:
        if isinstance(line, str):
            print(line)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
