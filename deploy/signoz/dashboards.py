#!/usr/bin/env python3
"""Writes generated/*.json for SigNoz: a dashboard in two formats, and saved views. Change it here, run this script, and
commit both; --check compares them.

SigNoz keeps the OpenTelemetry names of metrics, with dots. A histogram is stored as several metrics: NAME.bucket, from
which percentiles are computed, NAME.count and NAME.sum."""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent / "generated"
WIDTH, HEIGHT, COLUMNS = 6, 6, 12
TITLE = "tuft"
DESCRIPTION = "Training, sampling, operations and machine of tuft, an OpenTelemetry service."


class Panel:
    """A line for each value of the labels `by`. `how` is a percentile of a histogram, `rate` of a counter, or how the
    series of a gauge become one: `sum` or `max`."""

    def __init__(self, key, title, description, unit, metric, how, by, only="", steps=()):
        self.key, self.title, self.description, self.unit = key, title, description, unit
        self.metric, self.how, self.by, self.only, self.steps = metric, how, by, only, steps

    def aggregation(self):
        if self.how == "rate":
            return {"metricName": self.metric, "timeAggregation": "rate", "spaceAggregation": "sum"}
        if self.how.startswith("p"):
            return {"metricName": self.metric + ".bucket", "timeAggregation": "rate", "spaceAggregation": self.how}
        return {"metricName": self.metric, "timeAggregation": "latest", "spaceAggregation": self.how}

    def legend(self):
        return " ".join(f"{{{{{label}}}}}" for label in self.by)


SECTIONS = [
    (
        "Training",
        [
            Panel(
                "training-throughput",
                "Training throughput P50 by base model",
                "Half of the forward and forward_backward operations ran at this rate or faster: input tokens a second "
                "over the whole time of the operation, its wait included.",
                "none",
                "tuft.training.tokens_per_second",
                "p50",
                ["base_model"],
            ),
            Panel(
                "optimizer-steps",
                "Optimizer steps",
                "Steps a second.",
                "ops",
                "tuft.training.optim_steps",
                "rate",
                ["base_model"],
            ),
            Panel(
                "loss",
                "Loss P50",
                "Of the batches, by loss function.",
                "none",
                "tuft.training.loss",
                "p50",
                ["base_model", "loss_fn"],
            ),
            Panel(
                "training-tokens",
                "Training tokens",
                "Tokens a second through training passes.",
                "none",
                "tuft.training.tokens",
                "rate",
                ["base_model", "kind"],
            ),
        ],
    ),
    (
        "Sampling",
        [
            Panel(
                "sampling-qps",
                "Sampling QPS by base model",
                "Sampling requests that ended a second, failed ones included.",
                "reqps",
                "tuft.sampling.requests",
                "rate",
                ["base_model"],
            ),
            Panel(
                "first-token",
                "First token P95",
                "From the acceptance of a sampling request to its first token.",
                "s",
                "gen_ai.server.time_to_first_token",
                "p95",
                ["gen_ai.request.model"],
            ),
            Panel(
                "sampling-tokens",
                "Sampling tokens",
                "Prompt and output tokens a second.",
                "none",
                "tuft.sampling.tokens",
                "rate",
                ["base_model", "kind"],
            ),
            Panel(
                "kv-cache",
                "KV cache usage",
                "Share of the limit that sequences hold.",
                "percentunit",
                "tuft.kv_cache.usage",
                "max",
                ["base_model"],
                steps=((0.95, "Orange"),),
            ),
        ],
    ),
    (
        "Operations",
        [
            Panel(
                "operations",
                "Operations that ended",
                "By what they were and how they ended; each is counted once.",
                "ops",
                "tuft.requests.terminal",
                "rate",
                ["operation_type", "status"],
            ),
            Panel(
                "waiting",
                "Operations waiting",
                "Accepted, and no worker has started on them.",
                "none",
                "tuft.futures.queued",
                "sum",
                ["operation_type"],
            ),
            Panel(
                "error-types",
                "Error types",
                "Sampling requests that failed, a second, by the type of the error.",
                "reqps",
                "gen_ai.server.request.duration.count",
                "rate",
                ["error.type"],
                "error.type EXISTS",
            ),
            Panel("sessions", "Sessions", "Client sessions alive.", "none", "tuft.sessions.active", "sum", []),
        ],
    ),
    (
        "Machine",
        [
            Panel(
                "gpu",
                "GPU utilisation",
                "Busy share of each GPU. Empty where there is none.",
                "percent",
                "tuft.resource.gpu.utilization_percent",
                "max",
                ["gpu_id"],
                steps=((80, "Orange"), (90, "Red")),
            ),
            Panel(
                "memory",
                "Memory",
                "Used share of the memory of the machine, or of the container where it has a limit.",
                "percent",
                "tuft.resource.memory.utilization_percent",
                "max",
                [],
                steps=((85, "Orange"), (95, "Red")),
            ),
        ],
    ),
]


# What both formats place in the same way.


def placed(panels):
    for number, panel in enumerate(panels):
        yield panel, (number * WIDTH) % COLUMNS, number * WIDTH // COLUMNS * HEIGHT


# ---- the format v6


def field(name, signal, context, kind="string"):
    return {"name": name, "signal": signal, "fieldContext": context, "fieldDataType": kind}


def query_v6(panel):
    query = {
        "name": "A",
        "signal": "metrics",
        "aggregations": [panel.aggregation()],
        "legend": panel.legend(),
        "groupBy": [field(label, "metrics", "attribute") for label in panel.by],
    }
    return query | ({"filter": {"expression": panel.only}} if panel.only else {})


def panel_v6(panel):
    look = {
        "formatting": {"unit": panel.unit},
        "thresholds": [
            {"value": value, "unit": panel.unit, "color": color, "label": ""} for value, color in panel.steps
        ],
    }
    return {
        "kind": "Panel",
        "spec": {
            "display": {"name": panel.title, "description": panel.description},
            "plugin": {"kind": "signoz/TimeSeriesPanel", "spec": look},
            "queries": [
                {"kind": "time_series", "spec": {"plugin": {"kind": "signoz/BuilderQuery", "spec": query_v6(panel)}}}
            ],
        },
    }


def layout_v6(title, panels):
    items = [
        {"x": x, "y": y, "width": WIDTH, "height": HEIGHT, "content": {"$ref": f"#/spec/panels/{panel.key}"}}
        for panel, x, y in placed(panels)
    ]
    return {"kind": "Grid", "spec": {"display": {"title": title, "collapse": {"open": True}}, "items": items}}


def dashboard_v6():
    return {
        "schemaVersion": "v6",
        "name": "tuft",
        "tags": [{"key": "service", "value": "tuft"}],
        "spec": {
            "display": {"name": TITLE, "description": DESCRIPTION},
            "variables": [],
            "panels": {panel.key: panel_v6(panel) for _, panels in SECTIONS for panel in panels},
            "layouts": [layout_v6(title, panels) for title, panels in SECTIONS],
        },
    }


# ---- the format v5


def query_v5(panel):
    return {
        "queryName": "A",
        "dataSource": "metrics",
        "expression": "A",
        "disabled": False,
        "legend": panel.legend(),
        "aggregations": [panel.aggregation()],
        "filter": {"expression": panel.only},
        "functions": [],
        "having": {"expression": ""},
        "limit": None,
        "orderBy": [],
        "stepInterval": 60,
        "groupBy": [
            {"key": label, "dataType": "string", "type": "tag", "id": f"{label}--string--tag"} for label in panel.by
        ],
    }


def panel_v5(panel):
    return {
        "id": panel.key,
        "panelTypes": "graph",
        "title": panel.title,
        "description": panel.description,
        "yAxisUnit": panel.unit,
        "timePreferance": "GLOBAL_TIME",
        "opacity": "1",
        "nullZeroValues": "zero",
        "isStacked": False,
        "fillSpans": False,
        "softMin": None,
        "softMax": None,
        "selectedLogFields": [],
        "selectedTracesFields": [],
        "thresholds": [
            {
                "index": f"{panel.key}-{value}",
                "keyIndex": number,
                "thresholdColor": color,
                "thresholdFormat": "Text",
                "thresholdLabel": "",
                "thresholdOperator": ">",
                "thresholdTableOptions": "",
                "thresholdUnit": panel.unit,
                "thresholdValue": value,
                "isEditEnabled": False,
            }
            for number, (value, color) in enumerate(panel.steps)
        ],
        "query": {
            "id": f"{panel.key}-query",
            "queryType": "builder",
            "promql": [],
            "clickhouse_sql": [],
            "builder": {"queryData": [query_v5(panel)], "queryFormulas": []},
        },
    }


def dashboard_v5():
    widgets, layout, top = [], [], 0
    for title, panels in SECTIONS:
        row = "row-" + title.lower()
        widgets.append({"id": row, "panelTypes": "row", "title": title, "description": ""})
        layout.append(
            {
                "i": row,
                "x": 0,
                "y": top,
                "w": COLUMNS,
                "h": 1,
                "minW": COLUMNS,
                "minH": 1,
                "maxH": 1,
                "moved": False,
                "static": False,
            }
        )
        for panel, x, y in placed(panels):
            widgets.append(panel_v5(panel))
            layout.append(
                {"i": panel.key, "x": x, "y": top + 1 + y, "w": WIDTH, "h": HEIGHT, "moved": False, "static": False}
            )
        top = layout[-1]["y"] + HEIGHT
    return {
        "title": TITLE,
        "description": DESCRIPTION,
        "tags": ["tuft"],
        "version": "v5",
        "variables": {},
        "panelMap": {},
        "layout": layout,
        "widgets": widgets,
    }


# ---- saved views of the Traces Explorer


def view(key, title):
    columns = [
        field("service.name", "traces", "resource"),
        field("name", "traces", "span"),
        field("duration_nano", "traces", "span", "number"),
        field("tuft.operation_type", "traces", "attribute"),
        field(key, "traces", "attribute"),
        field("tuft.request_id", "traces", "attribute"),
    ]
    query = {
        "name": "A",
        "signal": "traces",
        "filter": {"expression": f"{key} EXISTS"},
        "limit": 100,
        "order": [{"key": {"name": "timestamp"}, "direction": "asc"}],
        "selectFields": columns,
    }
    return {
        "name": key.replace(".", "-").replace("_", "-"),
        "source": "traces",
        "schemaVersion": "v2",
        "spec": {
            "displayName": title,
            "panelType": "list",
            "requestType": "raw",
            "selectedFields": columns,
            "queries": [{"type": "builder_query", "spec": query}],
            "display": {"maxLines": 2, "fontSize": "small", "format": "table", "color": ""},
        },
    }


FILES = {
    "dashboard-v6.json": dashboard_v6(),
    "dashboard-v5.json": dashboard_v5(),
    "view-session.json": view("tuft.session_id", "tuft: one client session"),
    "view-training-run.json": view("tuft.training_run_id", "tuft: one training run"),
    "view-sampling-session.json": view("tuft.sampling_session_id", "tuft: one sampling session"),
}


def main():
    stale = []
    for name, content in FILES.items():
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        if "--check" not in sys.argv:
            (HERE / name).write_text(text)
        elif not (HERE / name).exists() or (HERE / name).read_text() != text:
            stale.append(name)
    if stale:
        sys.exit(f"Run deploy/signoz/{pathlib.Path(__file__).name}: {', '.join(stale)} differ from it")


if __name__ == "__main__":
    main()
