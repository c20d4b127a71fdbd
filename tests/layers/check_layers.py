#!/usr/bin/env python3
"""Checks that every #include is allowed by cmake/layers.txt, that every test is in a CMake target, and that files are
short.

check_layers.py [--root DIR]      prints one line for each error; the status is 1 if there are any"""
import argparse
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.M)
LINES_WARN, LINES_MAX = 500, 800
# Programs use the telemetry library without seeing the SDK's headers.
SDK_FREE_MODULE, SDK_PREFIXES = "telemetry", ("opentelemetry/", "grpcpp/", "grpc/", "spdlog/")


def read_layers(path):
    """Returns ({module: its direct dependencies}, {third-party prefix: modules that may include it}, {module/room:
    rooms of the same module that it may include})."""
    modules, third, rooms = {}, {}, {}
    for line in path.read_text().splitlines():
        line = line.split("#")[0].strip()
        if not line:
            continue
        name, _, rest = line.partition(":")
        words = name.split()
        if words[0] == "third":
            for prefix in words[1:]:
                third[prefix] = set(rest.split())
        elif words[0] == "room":
            rooms[words[1]] = set(rest.split())
        else:
            modules[name.strip()] = set(rest.split())
    return modules, third, rooms


def module_of(path, modules):
    """Returns the longest module name that is a parent folder of the path; None if there is none."""
    parts = path.split("/")
    for length in range(len(parts), 0, -1):
        if "/".join(parts[:length]) in modules:
            return "/".join(parts[:length])
    return None


def generated_module(include):
    return "proto" if include.endswith(".pb.h") else None


def restricted_by(include, third):
    for prefix, allowed in third.items():
        if include == prefix or include.startswith(prefix + "/") or include.startswith(prefix + "."):
            return prefix, allowed
    return None, None


class Checker:
    def __init__(self, root):
        self.root, self.src = root, root / "src"
        self.modules, self.third, self.rooms = read_layers(root / "cmake" / "layers.txt")
        self.modules_with_rooms = {room.rpartition("/")[0] for room in self.rooms}
        self.problems, self.warnings = [], []

    def complain(self, path, text, line=None):
        where = path.relative_to(self.root).as_posix() + (f":{line}" if line else "")
        self.problems.append(f"{where}: {text}")

    def check_graph(self):
        self.check_acyclic(self.modules)
        for module in sorted(self.modules_with_rooms):
            if module not in self.modules:
                self.problems.append(f"cmake/layers.txt: rooms of {module}, which has no line")
            self.check_acyclic({room: {f"{module}/{name}" for name in names - {"."}}
                                for room, names in self.rooms.items() if room.rpartition("/")[0] == module})
        for prefix, users in self.third.items():
            for unknown in users - self.modules.keys() - {"engine/torch", "store/redis"}:
                self.problems.append(f"cmake/layers.txt: third {prefix} names {unknown}, which has no line")

    def check_acyclic(self, graph):
        for node, dependencies in graph.items():
            for unknown in sorted(dependencies - graph.keys()):
                self.problems.append(f"cmake/layers.txt: {node} depends on {unknown}, which has no line")
        state = {}

        def visit(node, trail):
            if state.get(node) == "done" or node not in graph:
                return
            if node in trail:
                cycle = " -> ".join(trail[trail.index(node):] + [node])
                self.problems.append(f"cmake/layers.txt: a cycle: {cycle}")
                return
            for dependency in sorted(graph[node]):
                visit(dependency, trail + [node])
            state[node] = "done"

        for node in graph:
            visit(node, [])

    def check_file(self, path):
        relative = path.relative_to(self.src).as_posix()
        module = module_of(relative, self.modules)
        text = path.read_text(errors="replace")
        if module is None:
            self.complain(path, "belongs to no module of cmake/layers.txt")
            return
        for match in INCLUDE.finditer(text):
            line = text.count("\n", 0, match.start(2)) + 1
            self.check_include(path, module, match.group(2), match.group(1) == '"', line)
        lines = text.count("\n")
        if lines > LINES_MAX:
            self.complain(path, f"{lines} lines; split it (at most {LINES_MAX})")
        elif lines > LINES_WARN:
            self.warnings.append(f"{path.relative_to(self.root).as_posix()}: {lines} lines, more than {LINES_WARN}")

    def check_include(self, path, module, include, ours, line):
        prefix, allowed = restricted_by(include, self.third)
        if prefix is not None:
            # A folder inside a module counts as part of the module.
            if module not in allowed:
                self.complain(path, f"{module} may not include <{include}>; only {', '.join(sorted(allowed))} may", line)
        is_header, is_test = path.suffix == ".h", "/tests/" in path.as_posix() or "/testing/" in path.as_posix()
        if module == SDK_FREE_MODULE and is_header and not is_test and self.is_public(path):
            if include.startswith(SDK_PREFIXES):
                self.complain(path, f"a public header of telemetry may not include <{include}>", line)
        if not ours:
            return
        target = generated_module(include) or module_of(include, self.modules)
        if include.startswith("src/") or include.startswith("../"):
            self.complain(path, f'write #include "module/file.h", not "{include}"', line)
        elif target is None:
            if not (path.parent / include).exists() or "/" not in include:
                self.complain(path, f'"{include}" is in no module; write #include "module/file.h"', line)
        elif target != module and target not in self.modules[module]:
            self.complain(path, f'{module} may not include {target} ("{include}")', line)
        elif target == module and module in self.modules_with_rooms and not is_test:
            self.check_room(path, module, include, line)

    def check_room(self, path, module, include, line):
        """Checks an include within a module. Files in the module's own folder may include every room."""
        source = self.room_of(path.relative_to(self.src).as_posix(), module)
        target = self.room_of(include, module)
        if source is None or source == target:
            return
        if f"{module}/{source}" not in self.rooms:
            self.complain(path, f"{module}/{source} is no room of cmake/layers.txt", line)
        elif (target or ".") not in self.rooms[f"{module}/{source}"]:
            self.complain(path, f'{module}/{source} may not include {module}/{target or "*.h"} ("{include}")', line)

    @staticmethod
    def room_of(path, module):
        """Returns the folder below the module; None for a file in the module's own folder."""
        first, slash, _ = path.removeprefix(module + "/").partition("/")
        return first if slash else None

    @staticmethod
    def is_public(path):
        """Returns True unless the header's first lines say that it is internal."""
        head = "".join(path.read_text(errors="replace").splitlines(True)[:6]).lower()
        return "internal" not in head

    def check_tests_are_built(self):
        for test in sorted(self.src.rglob("*_test.cc")) + sorted((self.root / "tests").rglob("*_test.cc")):
            folder = test.parent
            while folder != self.root and not self.mentions(folder, test):
                folder = folder.parent
            if folder == self.root:
                self.complain(test, "is in no CMake target")

    @staticmethod
    def mentions(folder, test):
        lists = folder / "CMakeLists.txt"
        if not lists.exists():
            return False
        name = test.relative_to(folder).as_posix()
        return re.search(rf"(^|[\s(/]){re.escape(name)}($|[\s)])", lists.read_text(), re.M) is not None

    def run(self):
        self.check_graph()
        for path in sorted(self.src.rglob("*")):
            if path.suffix in (".h", ".cc"):
                self.check_file(path)
        self.check_tests_are_built()
        return self.problems


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    checker = Checker(parser.parse_args().root.resolve())
    problems = checker.run()
    for line in checker.warnings:
        print("warning:", line)
    for line in problems:
        print(line)
    if problems:
        print(f"{len(problems)} problems; cmake/layers.txt is the module graph")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
