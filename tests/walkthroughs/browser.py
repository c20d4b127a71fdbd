"""Screenshots of web pages by Chromium without a window."""

import html
import re
import subprocess

SECONDS = 120
WIDTH, HEIGHT = 1500, 900
PNG_BYTES_MAX = 120_000


def chromium(url, option, seconds=15, window=(WIDTH, HEIGHT)):
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
        option,
        url,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True).stdout


def text(url, **more):
    """Returns the page's text, after its programs have run. Jaeger's page splits names between elements."""
    return html.unescape(re.sub(r"<[^>]*>", "", chromium(url, "--dump-dom", **more)))


def screenshot(url, path, **more):
    """Writes a PNG with a palette. Returns its size."""
    whole = path.with_suffix(".whole.png")
    chromium(url, f"--screenshot={whole}", **more)
    subprocess.run(["pngquant", "--force", "--strip", "--speed=1", "--output", path, "64", whole], check=True)
    whole.unlink()
    size = path.stat().st_size
    assert size < PNG_BYTES_MAX, f"{path.name} has {size} bytes"
    return size
