"""Makes the pictures of docs/console.md from a real server that has run the demo's load:

    PYTHONPATH=tests/support:tests/console .venv-console/bin/python tests/console/pictures.py [URL OPERATOR_KEY]

Without a server it starts one. Needs pngquant. Look at each picture afterwards."""

import json
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

from browser import PHONE, Console, chromium, eventually
from world import OPERATOR, World

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "docs/console"
BYTES_MAX = 250_000


def ask(url, key, path):
    request = urllib.request.Request(f"{url}/api/v1/observe{path}", headers={"X-API-Key": key})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def shoot(page, name):
    page.mouse.move(0, 0)
    eventually(page, "document.getAnimations().every(one => one.playState !== 'running')")
    page.wait_for_load_state("networkidle")
    path = FOLDER / f"{name}.png"
    page.screenshot(path=path)
    subprocess.run(["pngquant", "--force", "--skip-if-larger", "--quality=70-100", "--output", path, path], check=False)
    size = path.stat().st_size
    print(f"{path.name}: {size} bytes")
    assert size < BYTES_MAX, path


def addresses(url, key):
    """Yields the name of each picture and the path of the console that it shows."""
    trained = ask(url, key, "/traces?name=hf_model.forward_backward&limit=60")["traces"]
    trained.sort(key=lambda trace: trace["duration"])
    typical, slow = (trace["trace_id"] for trace in (trained[len(trained) // 3], trained[-1]))
    runs = [run for run in ask(url, key, "/runs")["runs"] if run["steps"] > 20]
    yield "overview", "/?from=-3m"
    yield "traces", "/traces?from=-3m"
    yield "trace", f"/traces/{slow}"
    yield "flame", f"/traces/{slow}?view=flame"
    yield "compare", f"/traces/compare/{typical}/{slow}"
    yield "logs", "/logs?from=-3m"
    yield "metrics", "/metrics?from=-3m"
    yield "metric", "/metrics?view=catalogue&metric=tuft.training.step.duration&fn=p95&by=phase&from=-3m"
    yield "runs", "/runs?runs=" + ",".join(run["run"] for run in runs[:3])
    yield "run", f"/runs/{runs[0]['run']}"
    yield "samplers", "/samplers"
    yield "tenants", "/tenants?from=-3m"
    yield "system", "/system?from=-3m"


def playground(console):
    page = console.open("/playground")
    path = next(one["tinker_path"] for one in checkpoints(console) if one["kind"] == "sampler")
    console.open(f"/playground?a={path}&b={models(console)[0]}")
    page.get_by_label("Prompt").fill("The harbour master")
    page.get_by_label("Max tokens").fill("32")
    page.get_by_role("button", name="Complete").click()
    page.get_by_text("tokens/s").nth(1).wait_for()
    shoot(page, "playground")


def models(console):
    return [model["base_model"] for model in ask(console.url, console.key, "/overview")["models"]]


def checkpoints(console):
    run = next(run for run in ask(console.url, console.key, "/runs")["runs"] if run["steps"] > 20)
    return ask(console.url, console.key, f"/runs/{run['run']}")["checkpoints"]


def make(url, key, owner):
    FOLDER.mkdir(exist_ok=True)
    with chromium() as browser:
        console = Console(browser, url, key).login()
        for name, path in addresses(url, key):
            shoot(console.open(path), name)
        # The weights of a run are its owner's.
        playground(Console(browser, url, owner).login())
        shoot(Console(browser, url, key, scheme="dark").login().open("/?from=-3m"), "dark")
        phone = Console(browser, url, key, viewport=PHONE).login()
        shoot(phone.open("/?from=-3m"), "phone")


def main():
    if len(sys.argv) > 2:
        return make(*sys.argv[1:])
    with tempfile.TemporaryDirectory() as home, World(pathlib.Path(home), size="small", steps=200) as world:
        make(world.url, OPERATOR, world.alice.key)


if __name__ == "__main__":
    main()
