#!/usr/bin/env python3
"""Checks that no two sources of a module declare the same name in their anonymous namespaces. The sources are compiled in
groups (ADR 0024), and the compiler finds a repeated name only within a group: a new source would move the groups, and
show the repetitions of others. Reads what clang-format leaves; functions may differ in the types of their parameters."""
import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULE = re.compile(r"tuft_module\(NAME (\S+)\s+SOURCES\b(.*?)(?:\b(?:ALONE|LIBS|TESTS|TEST_LIBS)\b|\)\s)", re.S)
RAW_STRING = re.compile(r'R"(\w*)\(.*?\)\1"', re.S)
SPACE = re.compile(r"namespace ([\w:]+) \{$")
ALIAS = re.compile(r"(?:using|namespace) (\w+) = (.*)")
TYPE = re.compile(r"(?:struct|class|enum class|enum|union) (\w+)[^;(]*(?:\{|$)")
VARIABLE = re.compile(r"[\w:<>,&*\s]*?[\s&*](\w+)(?:\[\w*\])*(?:\s+TUFT_\w+\(.*?\))?\s*(?:=|;|\{)")
FUNCTION = re.compile(r"[\w:<>,&*\s]+?[\s&*](\w+)\(")
NO_DECLARATION = ("//", "}", "#", "template", ")", " ")


def split_at_commas(text):
    """Returns the parts of a parameter list; commas within brackets separate nothing."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "<([{") - (character in ">)]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def types_of(parameters):
    """Returns the parameter list without names, defaults and comments."""
    types = []
    for parameter in split_at_commas(re.sub(r"/\*.*?\*/", "", parameters)):
        declared = parameter.partition("=")[0].strip()
        named = re.fullmatch(r"(.*[\w>][\s&*]+)\w+", declared)
        types.append(" ".join((named[1] if named else declared).split()))
    return ", ".join(types)


def parameters_of(rest, following):
    """Returns the text from an opening parenthesis, which is not in `rest`, to the closing one."""
    depth = 1
    text = " ".join([rest, *(line.strip() for line in following)])
    for end, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[:end]
    return text


def names_of(text):
    """Yields (namespace, name, what it is) of each declaration in an anonymous namespace."""
    space, is_anonymous = "", False
    lines = RAW_STRING.sub('""', text).split("\n")
    for number, line in enumerate(lines):
        if found := SPACE.match(line):
            space = found[1]
        elif line in ("namespace {", "}  // namespace"):
            is_anonymous = line.startswith("n")
        elif not is_anonymous or not line or line.startswith(NO_DECLARATION):
            continue
        elif found := ALIAS.match(line):
            yield space, found[1], f"alias of {found[2]}"
        elif found := TYPE.match(line):
            yield space, found[1], "type"
        elif found := VARIABLE.match(line):
            yield space, found[1], "variable"
        elif found := FUNCTION.match(line):
            yield space, found[1], f"({types_of(parameters_of(line[found.end():], lines[number + 1:number + 12]))})"


def repetitions(folder, sources):
    """Yields (name, the two sources)."""
    first = {}
    for source in sources:
        for space, name, what in names_of((folder / source).read_text()):
            is_overloaded = what.startswith("(")
            known = first.setdefault((space, name, what if is_overloaded else ""), (what, source))
            may_be_repeated = what.startswith("alias") and known[0] == what
            if known[1] != source and not may_be_repeated:
                yield name, known[1], source


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    root = parser.parse_args().root
    found, modules = [], 0
    for listing in sorted(root.glob("src/**/CMakeLists.txt")):
        for module, body in MODULE.findall(listing.read_text()):
            modules += 1
            sources = re.findall(r"^\s*([\w/]+\.cc)", body, re.M)
            found += [f"{module}: {one} and {other} both declare {name}; share it, or give one another name"
                      for name, one, other in repetitions(listing.parent, sources)]
    print("\n".join(found) or f"names: unique in the anonymous namespaces of {modules} modules")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
