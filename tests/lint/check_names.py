#!/usr/bin/env python3
"""Checks that no two sources of a module, and no two of its tests, declare the same name in their anonymous namespaces. They are
compiled in groups (ADR 0024), and the compiler finds a repeated name only within a group: a new source would move the groups, and
show the repetitions of others. For the same reason a test must write `::testing::` where it means the namespace of GoogleTest: a
neighbour may include a namespace `testing` of ours. Reads what clang-format leaves; functions may differ in the types of their
parameters."""
import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULE = re.compile(r"tuft_module\(NAME (\S+)(.*?)\)\s", re.S)
LISTS = re.compile(r"\b(SOURCES|ALONE|LIBS|TESTS|TEST_LIBS)\b")
RAW_STRING = re.compile(r'R"(\w*)\(.*?\)\1"', re.S)
SPACE = re.compile(r"namespace ([\w:]+) \{$")
END_OF_SPACE = re.compile(r"\}  // namespace [\w:]+$")
ALIAS = re.compile(r"(?:using|namespace) (\w+) = (.*)")
TYPE = re.compile(r"(?:struct|class|enum class|enum|union) (\w+)[^;(]*(?:\{|$)")
VARIABLE = re.compile(r"[\w:<>,&*\s]*?[\s&*](\w+)(?:\[\w*\])*(?:\s+TUFT_\w+\(.*?\))?\s*(?:=|;|\{)")
GOOGLETEST = re.compile(r"(?<![:\w])testing::(Test|TestWithParam|Values|internal|\w*Contains|Each|\w*ElementsAre|HasSubstr|IsEmpty|"
                        r"MatchesRegex|Not|Pair|SizeIs)\b")
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


def calls_of(parameters):
    """Yields the types of the arguments of each call that a parameter list allows: with and without its defaults."""
    types = []
    for parameter in split_at_commas(re.sub(r"/\*.*?\*/", "", parameters)):
        declared, has_default, _ = parameter.partition("=")
        if has_default:
            yield ", ".join(types)
        named = re.fullmatch(r"(.*[\w>][\s&*]+)\w+", declared.strip())
        types.append(" ".join((named[1] if named else declared).split()))
    yield ", ".join(types)


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
    spaces, is_anonymous = [], False
    lines = RAW_STRING.sub('""', text).split("\n")
    for number, line in enumerate(lines):
        space = "::".join(spaces)
        if found := SPACE.match(line):
            spaces.append(found[1])
        elif END_OF_SPACE.match(line):
            spaces.pop()
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
            for types in calls_of(parameters_of(line[found.end():], lines[number + 1:number + 12])):
                yield space, found[1], f"({types})"


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


def bare_uses(folder, sources):
    """Yields the names of GoogleTest that the sources use through a bare `testing::`, each with its source."""
    for source in sources:
        for name in sorted(set(GOOGLETEST.findall((folder / source).read_text()))):
            yield source, name


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    root = parser.parse_args().root
    found, modules = [], 0
    for listing in sorted(root.glob("src/**/CMakeLists.txt")):
        for module, body in MODULE.findall(listing.read_text()):
            modules += 1
            parts = LISTS.split(body)
            for kind, files in zip(parts[1::2], parts[2::2]):
                if kind not in ("SOURCES", "TESTS"):
                    continue
                sources = re.findall(r"(?<=\s)[\w/]+\.cc\b", files)
                found += [f"{module}: {one} and {other} both declare {name}; share it, or give one another name"
                          for name, one, other in repetitions(listing.parent, sources)]
                if kind == "TESTS":
                    found += [f"{module}: {source} says testing::{name}; write ::testing::{name}"
                              for source, name in bare_uses(listing.parent, sources)]
    print("\n".join(found) or f"names: unique in the anonymous namespaces of {modules} modules")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
