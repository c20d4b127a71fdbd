"""Reads a Markdown page as its readers see it: sections, tables, code blocks and links. Knows what the pages of this
project use, not all of Markdown."""
import collections
import dataclasses
import itertools
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^\s*```")
HEADING = re.compile(r"^(#{1,6}) (.*)$")
LINK = re.compile(r"\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)|<(https?://[^>\s]+)>")
CODE = re.compile(r"`([^`]+)`")
ANCHOR = re.compile(r'<a id="([^"]+)">')


@dataclasses.dataclass
class Section:
    """A heading with what follows it up to the next one. The text before the first heading has level 0."""
    level: int
    title: str
    line: int
    blocks: list = dataclasses.field(default_factory=list)  # texts between fences
    tables: list = dataclasses.field(default_factory=list)  # lists of rows, which are lists of cells; the head is first
    text: list = dataclasses.field(default_factory=list)  # other lines

    def links(self):
        """Returns the targets of the links in the texts and the tables, in their order."""
        lines = self.text + [" ".join(row) for table in self.tables for row in table] + [self.title]
        # A link may break over two lines.
        joined = re.sub(CODE, lambda code: code[0] if "](" not in code[0] else "", "\n".join(lines))
        return [link or bare for link, bare in LINK.findall(joined)]

    def names(self):
        """Returns the names in backticks in the text outside of tables."""
        return set(CODE.findall(" ".join(self.text)))


def cells_of(line):
    """Splits a row of a table; a | in backticks or after a backslash belongs to its cell."""
    hidden = re.sub(r"`[^`]*`|\\\|", lambda found: found[0].replace("|", "\0"), line.strip())
    return [cell.strip().replace("\0", "|") for cell in hidden.strip("|").split("|")]


def read(path):
    """Returns the page's sections."""
    return parse(path.read_text(), path)


def parse(page, name):
    """Returns the sections of a page's text; errors have its name."""
    sections = [Section(0, "", 1)]
    block = None
    was_row = False
    for number, line in enumerate(page.splitlines(), 1):
        here = sections[-1]
        if FENCE.match(line):
            if block is None:
                block = [line.strip()]
            else:
                here.blocks.append("\n".join(block))
                block = None
        elif block is not None:
            block.append(line)
        elif heading := HEADING.match(line):
            sections.append(Section(len(heading[1]), heading[2].strip(), number))
        elif line.startswith("|"):
            if not was_row:
                here.tables.append([])
            if not re.fullmatch(r"\|(\s*:?-+:?\s*\|)+", line.strip()):
                here.tables[-1].append(cells_of(line))
        else:
            here.text.append(line)
        was_row = line.startswith("|") and block is None
    assert block is None, f"{name}: a code block has no end"
    return sections


def slugs(sections):
    """Returns the anchor of each heading as GitHub makes it."""
    used = collections.Counter()
    found = []
    for section in sections:
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", section.title).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found.append(slug + (f"-{used[slug]}" if used[slug] else ""))
        used[slug] += 1
    return found


def pages():
    """Returns the Markdown files of the project, without those that a build or an installation makes."""
    folders = [folder for folder in ROOT.iterdir() if folder.is_dir() and folder.name[0] != "." and folder.name != "build"]
    found = itertools.chain(ROOT.glob("*.md"), *(folder.rglob("*.md") for folder in folders))
    return sorted(page for page in found if "node_modules" not in page.parts)
