"""Screenshots of web pages by Chromium without a window."""

import html
import re
import subprocess

SECONDS = 120
WIDTH, HEIGHT = 1500, 900
PNG_BYTES_MAX = 120_000


def visit(url, picture, seconds=15, window=(WIDTH, HEIGHT)):
    """Opens a page, lets its programs run, writes a PNG with a palette, and returns the page's text. Both are of one visit:
    what is in the text is in the picture, too, as far as the window shows it."""
    whole = picture.with_suffix(".whole.png")
    command = [
        "chromium",
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--no-first-run",
        "--user-data-dir=/tmp/chromium",
        f"--window-size={window[0]},{window[1]}",
        f"--virtual-time-budget={seconds * 1000}",
        "--dump-dom",
        f"--screenshot={whole}",
        url,
    ]
    content = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True).stdout
    subprocess.run(["pngquant", "--force", "--strip", "--speed=1", "--output", picture, "64", whole], check=True)
    whole.unlink()
    # Jaeger's page splits names between elements.
    return html.unescape(re.sub(r"<[^>]*>", "", content))
