"""The commands that compile each source alone, without precompiled headers: for other compilers than the build's, and for
sources that have changed since."""
import json
import pathlib
import re

PRECOMPILED = re.compile(r" -Winvalid-pch| -fpch-preprocess| -include \S+/cmake_pch\.hxx")
GROUPED = re.compile(r'^#include "(/.+)"', re.M)


def entries(build):
    """Returns CMake's entries, with one for each source of a group of sources that the build compiles together."""
    found = []
    for entry in json.loads((build / "compile_commands.json").read_text()):
        group = pathlib.Path(entry["file"])
        command = PRECOMPILED.sub("", entry["command"])
        sources = GROUPED.findall(group.read_text()) if group.parent.name == "Unity" else [entry["file"]]
        found += [{**entry, "file": source, "command": command.replace(str(group), source)} for source in sources]
    return found
