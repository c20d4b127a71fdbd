"""What can be done in the console: try a model, publish and delete a checkpoint, download, compare, keep a panel."""

import io
import json
import pathlib
import tarfile

from browser import eventually
from playwright.sync_api import expect
from test_filters import param

from tuft_server import MODEL, wait_until


def downloaded(page, click):
    with page.expect_download() as waiting:
        click()
    return pathlib.Path(waiting.value.path()).read_bytes(), waiting.value.suggested_filename


def test_two_models_complete_a_prompt_side_by_side(world, alice):
    page = alice.open(f"/playground?a={world.alice.weights}&b={MODEL}")
    page.get_by_label("Prompt").fill("The harbour master")
    page.get_by_label("Max tokens").fill("12")
    page.get_by_role("button", name="Complete").click()
    panes = page.locator(".pane, section:has(.pane-head)")
    for letter in (0, 1):
        pane = page.locator("section:has(> .pane-head)").nth(letter)
        expect(pane.locator(".pane-head")).to_contain_text("length")
        assert pane.locator("[data-token]").count() == 12
    assert panes.count() >= 2
    token = page.locator("[data-token]").first
    token.hover()
    expect(page.locator(".token-card li").first).to_be_visible()


def test_a_failure_of_the_playground_is_told(alice):
    page = alice.open("/playground?a=no-such-model")
    page.get_by_label("Prompt").fill("one")
    page.get_by_role("button", name="Complete").click()
    expect(page.locator(".error").first).to_contain_text("does not exist or is not yours")
    # The browser tells of the refusal, too.
    assert all("completions" in problem for problem in alice.problems)
    alice.problems.clear()


def test_a_checkpoint_is_published_downloaded_and_deleted(world, alice):
    page = alice.open(f"/runs/{world.alice.run}")
    row = page.get_by_role("grid", name="Checkpoints").locator(".table-row", has_text="weights/kept")
    row.get_by_role("button", name="Publish").click()
    expect(row.get_by_text("everyone")).to_be_visible()
    row.get_by_role("button", name="Unpublish").click()
    expect(row.get_by_text("everyone")).to_have_count(0)
    archive, name = downloaded(page, lambda: row.get_by_role("button", name="Download").click())
    assert name.endswith(".tar") and tarfile.open(fileobj=io.BytesIO(archive)).getnames()
    row.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(world.alice.state)
    dialog.get_by_role("button", name="Keep it").click()
    expect(row).to_be_visible()
    row.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(row).to_have_count(0)


def test_the_bundle_holds_no_secret(world, operator):
    page = operator.open("/system")
    content, name = downloaded(page, lambda: page.get_by_role("button", name="Diagnostic bundle").click())
    assert name.startswith("tuft-bundle-") and name.endswith(".tar.gz")
    with tarfile.open(fileobj=io.BytesIO(content)) as bundle:
        files = {pathlib.Path(one.name).name: bundle.extractfile(one).read() for one in bundle if one.isfile()}
    assert {"system.json", "metrics.txt", "logs.jsonl", "config.yaml"} <= set(files)
    for key in (world.alice.key, world.bob.key, world.operator.key, "harbour master"):
        assert not [name for name, text in files.items() if key.encode() in text], key


def test_a_trace_goes_to_perfetto(world, alice):
    page = alice.open(f"/traces/{world.alice.trace}")
    content, _ = downloaded(page, lambda: page.get_by_role("link", name="Perfetto").click())
    names = {event["name"] for event in json.loads(content)["traceEvents"]}
    assert "hf_model.forward_backward" in names


def test_two_traces_are_compared(alice):
    page = alice.open("/traces?operation=forward_backward")
    page.locator(".table-row").first.click()
    page.get_by_role("button", name="Compare…").click()
    alice.open("/traces?operation=forward_backward")
    expect(page.get_by_text("Open a trace to compare it with")).to_be_visible()
    page.locator(".table-row").nth(2).click()
    page.get_by_text("Compare with").first.click()
    expect(page.locator(".compare")).to_be_visible()
    expect(page.locator(".why-summary")).to_contain_text("Most of the difference")


def test_keys_of_the_timeline(world, alice):
    page = alice.open(f"/traces/{world.alice.trace}")
    timeline = page.locator(".tl-scroll")
    timeline.focus()
    timeline.press("ArrowDown")
    wait_until(lambda: param(page, "span"), 20, "a span is selected")
    timeline.press("]")
    expect(page.locator(".span-details .badge", has_text="critical path")).to_be_visible()
    timeline.press("+")
    wait_until(lambda: param(page, "zoom"), 20, "the zoom is in the address")
    timeline.press("0")
    wait_until(lambda: not param(page, "zoom"), 20, "the whole trace is shown")


def test_a_panel_is_kept_and_sent(world, operator, open_console):
    page = operator.open("/metrics?board=training")
    page.get_by_role("button", name="Add “Training tokens” to my panels").click()
    page.get_by_text("My panels", exact=True).click()
    expect(page.get_by_role("link", name="Training tokens")).to_be_visible()
    page.reload()
    expect(page.get_by_role("link", name="Training tokens")).to_be_visible()
    panels = '[["Sent","line",[["tuft.training.tokens","rate","base_model",""]]]]'
    other = open_console(world.operator.key)
    expect(other.open(f"/metrics?board=mine&panels={panels}").get_by_text("Sent").first).to_be_visible()
    eventually(other.page, "document.querySelectorAll('.chart canvas').length > 0")


def test_a_line_leads_to_its_span_and_back(world, alice):
    page = alice.open(f"/logs?trace={world.alice.trace}")
    page.locator(".log-line .log-trace").first.click()
    expect(page.locator(".span-details")).to_be_visible()
    page.get_by_role("link", name="Open in logs").click()
    expect(page.locator(".log-line").first).to_be_visible()
    assert param(page, "trace") == world.alice.trace and param(page, "span")
