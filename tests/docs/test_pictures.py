"""Checks that the pages show pictures that exist, and that none is of an empty page."""
import re
import struct
import zlib

import pytest

from markdown_pages import ROOT

PAGES = sorted((ROOT / "docs/walkthroughs").glob("*.md"))
PICTURES = sorted((ROOT / "docs/walkthroughs/images").glob("*.png"))
BYTES_MAX = 120_000


def rows(path):
    """Returns the filtered rows of a PNG with a palette of at most 8 bits a pixel."""
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height, bits, colour = struct.unpack(">IIBB", content[16:26])
    assert colour == 3, f"{path.name} has no palette"
    data, place = b"", 8
    while place < len(content):
        (length,) = struct.unpack(">I", content[place:place + 4])
        if content[place + 4:place + 8] == b"IDAT":
            data += content[place + 8:place + 8 + length]
        place += length + 12
    whole, stride = zlib.decompress(data), (width * bits + 7) // 8 + 1
    assert len(whole) == stride * height
    return [whole[row * stride + 1:(row + 1) * stride] for row in range(height)]


def test_every_picture_is_on_a_page_and_every_page_has_its_pictures():
    shown = {name for page in PAGES for name in re.findall(r"!\[[^\]]+\]\(images/([^)]+)\)", page.read_text())}
    assert shown == {path.name for path in PICTURES} and shown


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_picture_shows_something_below_the_head_of_its_page(path):
    assert path.stat().st_size < BYTES_MAX
    # A row of one colour is one byte, again and again, with each of PNG's filters but at its first pixel.
    lower = rows(path)[-len(rows(path)) // 2:]
    drawn = sum(len(set(row[1:])) > 1 for row in lower)
    assert drawn > len(lower) / 10, f"{path.name}: {drawn} of the {len(lower)} rows of the lower half show anything"
