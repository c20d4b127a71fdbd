"""Checks that each link between files of the project leads to a file, and to a heading or anchor in it."""
import functools
import re
from urllib.parse import unquote

import pytest

from markdown_pages import ANCHOR, ROOT, pages, read, slugs


@functools.cache
def anchors(path):
    return {*slugs(read(path)), *ANCHOR.findall(path.read_text())}


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page):
    dead = []
    for section in read(page):
        for link in section.links():
            if re.match(r"[a-z]+:", link):
                continue
            file, _, anchor = unquote(link).partition("#")
            target = (page.parent / file).resolve() if file else page
            if not target.exists():
                dead.append(f"'{section.title}': no file {link}")
            elif anchor and target.suffix == ".md" and anchor not in anchors(target):
                dead.append(f"'{section.title}': {link} names no heading of {target.relative_to(ROOT)}")
    assert not dead, "\n".join(dead)
