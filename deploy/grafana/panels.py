"""Builds panels and dashboards as Grafana's JSON, and the queries that several of them use.

In queries, MODEL stands for the label matchers of metrics with base_model, WORKER for those of metrics with only the
worker's name (which is its base model), SERVER for those of all others, and RANGE for the window of a rate."""

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WORDS = {"MODEL": 'base_model=~"$base_model", instance=~"$instance"',
         "WORKER": 'worker=~"$base_model", instance=~"$instance"', "SERVER": 'instance=~"$instance"',
         "RANGE": "$__rate_interval"}
FULL, HALF, THIRD, QUARTER = 24, 12, 8, 6
GREEN, YELLOW, RED = "green", "yellow", "red"


def fill(query):
    for word, text in WORDS.items():
        query = query.replace(word, text)
    return query


def quantiles(histogram, matchers, by="", legend="", points=(0.5, 0.95, 0.99)):
    """Makes one line for each quantile."""
    labels = ", ".join(["le", by] if by else ["le"])
    return [(f"histogram_quantile({point}, sum by ({labels}) (rate({histogram}_bucket{{{matchers}}}[RANGE])))",
             f"{legend} p{point * 100:g}".strip()) for point in points]


def rate(counter, matchers, by):
    return [(f"sum by ({by}) (rate({counter}{{{matchers}}}[RANGE]))",
             " ".join(f"{{{{{label.strip()}}}}}" for label in by.split(",")))]


def gauge(name, matchers, by, operation="sum"):
    return [(f"{operation} by ({by}) ({name}{{{matchers}}})",
             " ".join(f"{{{{{label.strip()}}}}}" for label in by.split(",")))]


def mean(histogram, matchers, by):
    """Makes a line for the average of a histogram."""
    return [(f"sum by ({by}) (rate({histogram}_sum{{{matchers}}}[RANGE])) / "
             f"sum by ({by}) (rate({histogram}_count{{{matchers}}}[RANGE]))", f"{{{{{by}}}}} mean")]


class Panel:
    def __init__(self, title, description, unit, queries, kind="timeseries", width=THIRD, height=8, steps=(),
    top=None,
                 stack=False):
        self.title, self.description, self.unit = title, description, unit
        self.queries, self.kind, self.width, self.height = queries, kind, width, height
        self.steps, self.top, self.stack = steps, top, stack

    def json(self, number, x, y):
        colors = [{"color": GREEN, "value": None}] + [{"color": color, "value": value} for value, color in self.steps]
        defaults = {"unit": self.unit, "min": 0, "thresholds": {"mode": "absolute", "steps": colors}}
        if self.top is not None:
            defaults["max"] = self.top
        if self.kind == "timeseries":
            defaults["color"] = {"mode": "palette-classic"}
            defaults["custom"] = {"fillOpacity": 25 if self.stack else 8, "lineWidth": 1, "showPoints": "auto",
                                  "spanNulls": False, "stacking": {"mode": "normal" if self.stack else "none"},
                                  "thresholdsStyle": {"mode": "line" if self.steps else "off"}}
            options = {"legend": {"displayMode": "table", "placement": "bottom", "showLegend": True,
                                  "calcs": ["lastNotNull", "max"]},
                       "tooltip": {"mode": "multi", "sort": "desc"}}
        else:
            defaults["color"] = {"mode": "thresholds"}
            options = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
            options |= {"colorMode": "value", "graphMode": "area", "textMode": "auto"} if self.kind == "stat" else {}
        targets = [{"refId": chr(ord("A") + i), "datasource": SOURCE, "expr": fill(query), "legendFormat": legend,
                    "range": True} for i, (query, legend) in enumerate(self.queries)]
        return {"id": number, "type": self.kind, "title": self.title, "description": self.description,
                "datasource": SOURCE, "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
                "fieldConfig": {"defaults": defaults, "overrides": []}, "options": options, "targets": targets}


def stat(title, description, unit, query, steps=(), kind="stat", top=None):
    return Panel(title, description, unit, [(query, "")], kind, 3, 4, steps, top)


def variable(name, label, metric):
    query = f"label_values({metric}, {name})"
    return {"name": name, "label": label, "type": "query", "datasource": SOURCE,
            "query": {"query": query, "refId": name}, "refresh": 2, "sort": 1, "multi": True, "includeAll": True,
            "allValue": ".*", "current": {"text": ["All"], "value": ["$__all"]}}


def place(rows):
    """Places panels from left to right below the heading of their row."""
    panels, y = [], 0
    for heading, row in rows:
        panels.append({"id": len(panels) + 1, "type": "row", "title": heading, "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": y, "w": FULL, "h": 1}})
        y, x, tallest = y + 1, 0, 0
        for panel in row:
            if x + panel.width > FULL:
                y, x, tallest = y + tallest, 0, 0
            panels.append(panel.json(len(panels) + 1, x, y))
            x, tallest = x + panel.width, max(tallest, panel.height)
        y += tallest
    return panels


def dashboard(uid, title, description, rows):
    return {
        "uid": uid, "title": title, "description": description, "tags": ["tuft"], "schemaVersion": 39, "version": 1,
        "editable": True, "graphTooltip": 1, "refresh": "10s", "timezone": "", "time": {"from": "now-30m",
        "to": "now"},
        "annotations": {"list": []},
        "links": [{"type": "dashboards", "tags": ["tuft"], "title": "tuft", "asDropdown": True, "includeVars": True,
                   "keepTime": True, "icon": "external link", "targetBlank": False, "url": ""}],
        "templating": {"list": [
            {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "refresh": 1,
             "current": {}},
            variable("base_model", "Base model", "tuft_worker_up"),
            variable("instance", "Server", "tuft_build_info")]},
        "panels": place(rows)}
