"""Runs a program that uses the SDK, in an interpreter of its own."""
import json
import subprocess

import sdk_exit
from tuft_server import clean_environment


def output_of(python, source, folder, *arguments):
    """Returns the JSON of the last line that the program prints."""
    program = folder / "program.py"
    program.write_text(source)
    run = subprocess.run([python, sdk_exit.__file__, program, *arguments], capture_output=True, text=True, timeout=280,
                         env={**clean_environment(), "TINKER_TELEMETRY": "0"})
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout.splitlines()[-1])
