"""The dashboard that asks Tempo: slow operations, failed ones, and all of a session, a run or a sampling session."""

from panels import FULL, HALF, dashboard

SOURCE = {"type": "tempo", "uid": "${tempo}"}
OPERATION = 'name = "future_store.execute_operation"'
MODEL = 'span.tuft.base_model =~ "$base_model"'
COLUMNS = "| select(span.tuft.operation_type, span.tuft.base_model, span.tuft.session_id, span.tuft.request_id)"


class TracePanel:
    """A table of the traces that a TraceQL query finds, or with kind="timeseries" the lines of a query of metrics."""

    def __init__(self, title, description, query, kind="table", unit="s", width=HALF, height=9):
        self.title, self.description, self.query, self.kind, self.unit = title, description, query, kind, unit
        self.width, self.height = width, height

    def json(self, number, x, y):
        target = {"refId": "A", "datasource": SOURCE, "queryType": "traceql", "query": self.query, "limit": 50,
                  "tableType": "traces", "filters": []}
        return {"id": number, "type": self.kind, "title": self.title, "description": self.description,
                "datasource": SOURCE, "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
                "fieldConfig": {"defaults": {"unit": self.unit}, "overrides": []}, "options": {}, "targets": [target]}


def text(name, label, value):
    return {"name": name, "label": label, "type": "textbox", "query": value, "current": {"text": value, "value": value},
            "options": [{"text": value, "value": value, "selected": True}]}


def of_an_id(title, key, variable, what):
    return TracePanel(title, f"{what} The variable may be a regular expression.",
                      f'{{ span.{key} =~ "${variable}" }} {COLUMNS}', width=FULL)


TRACES = dashboard("tuft-traces", "tuft / Traces", "Call chains and slow requests. A row of a table opens its trace.", [
    ("Operations", [
        TracePanel("Duration of operations", "From acceptance to the end, by type, 95th percentile.",
                   f"{{ {OPERATION} && {MODEL} }} | quantile_over_time(duration, 0.95) by (span.tuft.operation_type)",
                   "timeseries"),
        TracePanel("Failed spans", "A second, by the type of the error.",
                   "{ status = error } | rate() by (span.error.type)", "timeseries", "ops"),
        TracePanel("Slow operations", "The newest ones that took longer than the variable *Slower than*.",
                   f"{{ {OPERATION} && {MODEL} && duration > $slower }} {COLUMNS}"),
        TracePanel("Failed operations", "The newest ones.",
                   f"{{ {OPERATION} && {MODEL} && status = error }} {COLUMNS}")]),
    ("One user's work", [
        of_an_id("Session", "tuft.session_id", "session", "Everything that one client session did."),
        of_an_id("Training run", "tuft.training_run_id", "run", "The life of one adapter."),
        of_an_id("Sampling session", "tuft.sampling_session_id", "sampling", "One sampling client.")])])
TRACES["templating"]["list"] += [
    {"name": "tempo", "label": "Tempo", "type": "datasource", "query": "tempo", "refresh": 1, "current": {}},
    text("slower", "Slower than", "1s"), text("session", "Session", ".+"), text("run", "Training run", ".+"),
    text("sampling", "Sampling session", ".+")]
