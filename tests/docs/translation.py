#!/usr/bin/env python3
"""Keeps the Chinese pages in step with the English ones.

  translation.py --check     fails if a Chinese page differs from its English page in what both must share
  translation.py --update    writes the generated tables of the Chinese pages from the English ones

Both pages have the same headings (level and order). Below each heading they have the same code blocks, byte for byte; the
same tables (number of rows; names in backticks, links and numbers in each row); and in the text the same links, names in
backticks and numbers in digits. What lies between `<!-- x: begin -->` and `<!-- x: end -->` is generated: the texts of its
tables are translated with docs/zh/catalogue.json, and a text without a translation stays English."""
import argparse
import collections
import difflib
import json
import os
import pathlib
import re
import sys

from markdown_pages import CODE, ROOT, parse, slugs

PAIRS = {"README.md": "README.zh.md", "docs/telemetry.md": "docs/zh/telemetry.md"}
TEXTS = ROOT / "docs/zh/catalogue.json"
TOOL = "python3 tests/docs/translation.py --update"
GENERATED = re.compile(r"(<!-- (\w+): begin -->\n)(.*?)(<!-- \2: end -->)", re.S)
# Not digits within names such as SHA-256 or p99.
NUMBER = re.compile(r"(?<![\w.,-])\d+(?:[.,]\d+)*")
CHINESE = re.compile(r"[\u4e00-\u9fff]")


def split_row(line):
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split(" | ")]


def translate_tables(body, texts, used):
    """Translates the headings, the heads of tables and the last column of what is between two marks."""
    def say(text):
        if not re.search("[A-Za-z]{2}", re.sub(CODE, "", text)):
            return text
        used.add(text)
        return texts.get(text) or text

    lines, in_table = [], False
    for line in body.splitlines():
        if line.startswith("#"):
            marks, title = line.split(" ", 1)
            line = f"{marks} {say(title)}"
        elif line.startswith("|") and not line.startswith("|---"):
            cells = split_row(line)
            cells = cells[:-1] + [say(cells[-1])] if in_table else [say(cell) for cell in cells]
            line = "| " + " | ".join(cells) + " |"
        in_table = line.startswith("|")
        lines.append(line)
    return "".join(line + "\n" for line in lines)


def generate(english, chinese, texts):
    """Returns the Chinese page with fresh tables, and the English texts in them."""
    used = set()
    fresh = {name: translate_tables(body, texts, used) for _, name, body, _ in GENERATED.findall(english)}
    return GENERATED.sub(lambda old: old[1] + fresh.get(old[2], old[3]) + old[4], chinese), used


class Page:
    def __init__(self, name, text):
        self.name = name
        self.folder = os.path.dirname(name)
        self.sections = parse(text, name)
        self.slugs = slugs(self.sections)


def targets(section, page, pages):
    """Counts the targets of the section's links. A heading is named by its place, so that it is the same in both
    languages; the link from one language to the other does not count."""
    found = collections.Counter()
    english = {there: here for here, there in PAIRS.items()}
    for link in section.links():
        if re.match(r"[a-z]+:", link):
            found[link] += 1
            continue
        file, _, anchor = link.partition("#")
        name = os.path.normpath(os.path.join(page.folder, file)) if file else page.name
        if file and {name, page.name} in [{here, there} for here, there in PAIRS.items()] and not anchor:
            continue
        if anchor and name in pages:
            known = pages[name].slugs
            anchor = f"heading {known.index(anchor)}" if anchor in known else f"no heading {anchor}"
        found[english.get(name, name) + (f"#{anchor}" if anchor else "")] += 1
    return found


def plain(text):
    """Returns the text without its names, links and comments."""
    return re.sub(r"`[^`]*`|\]\([^)]*\)|<[^>]*>", " ", text)


def numbers(text):
    return set(NUMBER.findall(plain(text)))


def listing(things):
    return ", ".join(sorted(map(str, things))) or "nothing"


def differing(what, english, chinese):
    """Returns what one has and the other has not; "" if nothing."""
    if english == chinese:
        return ""
    return f"{what}: only in English {listing(english - chinese)}; only in Chinese {listing(chinese - english)}"


def compare_tables(english, chinese):
    if len(english.tables) != len(chinese.tables):
        yield f"{len(english.tables)} tables in English, {len(chinese.tables)} in Chinese"
        return
    for here, there in zip(english.tables, chinese.tables):
        if len(here) != len(there):
            first = {tuple(CODE.findall(row[0])) for row in here} ^ {tuple(CODE.findall(row[0])) for row in there}
            yield (f"a table has {len(here) - 1} rows in English, {len(there) - 1} in Chinese; only one has "
                   + listing(" ".join(names) for names in first if names))
            continue
        for row, other in zip(here, there):
            if len(row) != len(other):
                yield f"row '{row[0]}': {len(row)} cells in English, {len(other)} in Chinese"
            elif CODE.findall(row[0]) != CODE.findall(other[0]):
                yield f"row '{row[0]}': its first cell in Chinese is '{other[0]}'"
            else:
                yield differing(f"row '{row[0]}', names", *(set(CODE.findall(" ".join(r))) for r in (row, other)))
                yield differing(f"row '{row[0]}', numbers", *(numbers(" ".join(r)) for r in (row, other)))


def compare_section(english, chinese, pages):
    """Yields the differences between the sections of two (page, section), and empty texts."""
    here, there = english[1], chinese[1]
    if here.blocks != there.blocks:
        lines = [line for line in difflib.ndiff("\n".join(here.blocks).splitlines(), "\n".join(there.blocks).splitlines())
                 if line[0] in "-+"]
        yield "code blocks differ (- English, + Chinese): " + " / ".join(lines[:4])
    yield from compare_tables(here, there)
    yield differing("names in the text", here.names(), there.names())
    yield differing("numbers in the text", numbers(" ".join(here.text)), numbers(" ".join(there.text)))
    links = [targets(section, page, pages) for page, section in (english, chinese)]
    if links[0] != links[1]:
        yield f"links: only in English {listing(links[0] - links[1])}; only in Chinese {listing(links[1] - links[0])}"
    words = re.findall(r"[A-Za-z]{2,}", plain(" ".join(here.text)))
    if len(words) > 8 and not CHINESE.search(" ".join(there.text)):
        yield "the text is not translated"


def shape(section):
    return (section.level, *section.blocks, *(tuple(CODE.findall(row[0])) for table in section.tables for row in table))


def compare_headings(english, chinese):
    """Returns where the headings differ; "" if they have the same levels in the same order."""
    if [one.level for one in english.sections] == [one.level for one in chinese.sections]:
        return ""
    match = difflib.SequenceMatcher(None, *([shape(one) for one in page.sections] for page in (english, chinese)), False)
    parts = []
    for kind, a, b, c, d in match.get_opcodes():
        if kind != "equal" and b - a != d - c:
            after = f"after '{chinese.sections[c - 1].title}' (line {chinese.sections[c - 1].line})" if c else "at the top"
            parts.append(f"{after} English has {listing(repr(one.title) for one in english.sections[a:b])}, Chinese "
                         f"{listing(repr(one.title) for one in chinese.sections[c:d])}")
    return "headings differ in number, order or level: " + ("; ".join(parts) or "compare their levels")


def problems(texts=None, read=lambda name: (ROOT / name).read_text()):
    """Returns what is not in step. `read` returns the text of a page."""
    texts = json.loads(TEXTS.read_text()) if texts is None else texts
    found, pages = [], {}
    for here, there in PAIRS.items():
        english, chinese = read(here), read(there)
        fresh, _ = generate(english, chinese, texts)
        if fresh != chinese:
            found.append(f"{there}: the generated tables are not those of {here}. Run {TOOL}, and translate what it says")
        pages[here], pages[there] = Page(here, english), Page(there, fresh)
    for here, there in PAIRS.items():
        english, chinese = pages[here], pages[there]
        if wrong := compare_headings(english, chinese):
            found.append(f"{there}: {wrong}. Translate the section that is new in {here}, or delete the one that is gone")
            continue
        for one, other in zip(english.sections, chinese.sections):
            found += [f"{there}:{other.line}: '{other.title}' is not in step with '{one.title}' ({here}:{one.line}): "
                      f"{wrong}" for wrong in compare_section((english, one), (chinese, other), pages) if wrong]
    return found


def update():
    """Writes the generated tables, and the list of their texts; prints those that nobody has translated."""
    texts, used = json.loads(TEXTS.read_text()) if TEXTS.exists() else {}, set()
    for here, there in PAIRS.items():
        page = ROOT / there
        fresh, names = generate((ROOT / here).read_text(), page.read_text(), texts)
        page.write_text(fresh)
        used |= names
    TEXTS.write_text(json.dumps({text: texts.get(text, "") for text in sorted(used)}, ensure_ascii=False, indent=0) + "\n")
    for text in sorted(used):
        if not texts.get(text):
            print(f"{TEXTS.relative_to(ROOT)}: not translated: {text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    if options.update:
        update()
    found = problems()
    print("\n".join(found), end="\n" if found else "")
    return 1 if found and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
