"""The commands that CMake wrote for each source, without precompiled headers: for other compilers than the build's, and for
sources that have changed since."""
import json
import re

PRECOMPILED = re.compile(r" -Winvalid-pch| -fpch-preprocess| -include \S+/cmake_pch\.hxx")


def entries(build):
    found = json.loads((build / "compile_commands.json").read_text())
    for entry in found:
        entry["command"] = PRECOMPILED.sub("", entry["command"])
    return found
