#!/usr/bin/env python3
"""Prints a line with the reason for each test that a run of ctest skipped: skipped_tests.py REPORT, the file that
`ctest --output-junit` wrote. Understands GoogleTest, pytest (with -rs) and programs that print `skipped: REASON`."""
import re
import sys
import xml.etree.ElementTree

PYTEST = re.compile(r"^SKIPPED \[(\d+)\] (\S+?): (.*)$", re.M)
GTEST = re.compile(r"Skipped\n(.+?)\n*\[  SKIPPED \]", re.S)
PROGRAM = re.compile(r"^skipped: (.*)$", re.M)


def skipped(cases):
    """Returns (test, reason) of each skipped test."""
    for case in cases:
        name, output = case.get("name"), case.findtext("system-out") or ""
        found = [(f"{name}, {place}" + (f" ({count} tests)" if count != "1" else ""), reason)
                 for count, place, reason in PYTEST.findall(output)]
        if not found and case.find("skipped") is not None:
            reasons = GTEST.findall(output) or PROGRAM.findall(output) or [case.find("skipped").get("message") or "no reason"]
            found = [(name, " ".join(reasons[0].split()))]
        yield from found


def main():
    cases = list(xml.etree.ElementTree.parse(sys.argv[1]).getroot().iter("testcase"))
    found = list(skipped(cases))
    if found:
        print(f"\n{len(found)} tests or groups of tests were skipped:")
        for name, reason in found:
            print(f"  {name}: {reason}")
    elif cases:
        print("\nno test was skipped")


if __name__ == "__main__":
    main()
