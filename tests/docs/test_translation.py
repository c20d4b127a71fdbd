"""Checks that the Chinese pages are in step with the English ones, and that the check finds each kind of difference."""
import json

import pytest

import translation
from translation import ROOT, TEXTS, problems


def changed(page, old, new):
    """Returns problems() as they would be if the page had `new` in the place of the first `old`."""
    def read(name):
        text = (ROOT / name).read_text()
        if name == page:
            assert old in text, f"{page} has no longer {old!r}"
            text = text.replace(old, new, 1)
        return text
    return problems(read=read)


def test_the_chinese_pages_are_in_step():
    found = problems()
    assert not found, "\n".join(["python3 tests/docs/translation.py --check says:", *found])


def test_no_translation_is_left_of_texts_that_are_gone():
    texts, used = json.loads(TEXTS.read_text()), set()
    for here in translation.PAIRS:
        used |= translation.generate((ROOT / here).read_text(), "", texts)[1]
    assert not texts.keys() - used, f"{TEXTS} has texts that no table has; run {translation.TOOL}"


@pytest.mark.parametrize("page, old, new, section, message", [
    ("docs/telemetry.md", "## Context propagation\n", "## New\n\ntext\n\n## Context propagation\n", "关联键", "English has 'New'"),
    ("docs/zh/telemetry.md", "## 上下文传播\n", "", "关联键", "Context propagation"),
    ("docs/zh/telemetry.md", "### 日志\n", "#### 日志\n", "", "levels"),
    ("docs/telemetry.md", "service_name: tuft\n", "service_name: other\n", "快速开始", "-   service_name: other"),
    ("docs/telemetry.md", "| `console` | stdout | |\n", "", "导出器与配置", "only one has console"),
    ("docs/zh/telemetry.md", "| `console` |", "| `consol` |", "导出器与配置", "its first cell in Chinese is '`consol`'"),
    ("docs/zh/telemetry.md", "`http://host:4318`；", "`http://host:4317`；", "导出器与配置", "http://host:4318"),
    ("docs/telemetry.md", "32 attributes", "64 attributes", "开销与上限", "numbers: only in English 64"),
    ("README.md", "takes 238 ns", "takes 240 ns", "有多快", "only in English 240"),
    ("docs/telemetry.md", "`telemetry.metrics_token` protects", "`telemetry.other_key` protects", "通过 HTTP 读取指标",
     "only in English telemetry.other_key"),
    ("README.md", "](docs/security.md))", "](docs/sampling.md))", "它保证什么", "only in English docs/sampling.md"),
    ("docs/zh/telemetry.md", "[上表](#关联键)", "[上表](#快速开始)", "目录", "docs/telemetry.md#heading"),
    ("docs/zh/telemetry.md", "W3C `traceparent` 和", "W3C 和", "上下文传播", "only in English traceparent"),
    ("docs/telemetry.md", "Requests being answered |", "Requests in work |", "generated tables", "--update"),
    ("docs/zh/telemetry.md", "| `http.server.active_requests`", "| `http.server.requests`", "generated tables", "--update"),
], ids=lambda value: value if value.isidentifier() else None)
def test_a_difference_is_found_with_its_section(page, old, new, section, message):
    found = changed(page, old, new)
    assert any(section in line and message in line for line in found), found


def test_a_text_that_is_still_english_is_found():
    def text_of(page, heading):
        return (ROOT / page).read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    english = text_of("docs/telemetry.md", "Context propagation")
    found = changed("docs/zh/telemetry.md", text_of("docs/zh/telemetry.md", "上下文传播"), english)
    assert len(found) == 1 and "'上下文传播'" in found[0] and "not translated" in found[0], found


def test_tables_are_generated_with_the_known_translations():
    english = ("<!-- spans: begin -->\n### Spans of it\n\n| span | what |\n|---|---|\n| `a.b`<br>`a` | One `x` |\n"
               "| `c` | Two |\n<!-- spans: end -->\n")
    chinese = "前\n<!-- spans: begin -->\nold\n<!-- spans: end -->\n后\n"
    fresh, used = translation.generate(english, chinese, {"One `x`": "一 `x`", "what": "含义", "gone": "无"})
    assert fresh == ("前\n<!-- spans: begin -->\n### Spans of it\n\n| span | 含义 |\n|---|---|\n| `a.b`<br>`a` | 一 `x` |\n"
                     "| `c` | Two |\n<!-- spans: end -->\n后\n")
    assert used == {"Spans of it", "span", "what", "One `x`", "Two"}
