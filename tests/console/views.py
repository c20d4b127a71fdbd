"""Every view of the console, with what has to be visible in it for a user who trained and sampled."""

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True)
class View:
    name: str
    path: str
    shows: str  # CSS of something that is drawn with the answer of the server
    operator_only: bool = False


def views_of(user):
    """Returns the views with the ids of a user's things in their paths."""
    run, trace = quote(user.run, safe=""), user.trace
    other = user.traces(name="hf_model.forward_backward", limit=5)[-1]["trace_id"]
    return [
        View("overview", "/", ".stat"),
        View("traces", "/traces", ".table-row"),
        View("requests", "/traces?of=requests", ".table-row"),
        View("trace", f"/traces/{trace}", ".tl-scroll"),
        View("flame", f"/traces/{trace}?view=flame", ".tl-scroll"),
        View("span-table", f"/traces/{trace}?view=table", "[role=grid] .table-row"),
        View("compare", f"/traces/compare/{trace}/{other}", ".compare"),
        View("logs", "/logs?level=debug", ".log-line"),
        View("line", "/logs?text=checkpoint", ".log-line mark"),
        View("panels", "/metrics", ".card"),
        View("continuous-batching", "/metrics?board=batching", ".card", operator_only=True),
        View("catalogue", "/metrics?view=catalogue", "main [role=tabpanel], main .card, main .table, main .empty"),
        View("metric", "/metrics?view=catalogue&metric=tuft.training.tokens", ".chart canvas", operator_only=True),
        View("runs", "/runs", ".table-row"),
        View("run", f"/runs/{run}", ".run-figures"),
        View("samplers", "/samplers", ".table-row"),
        View("playground", "/playground", "main textarea"),
        View("tenants", "/tenants", ".table-row"),
        View("tenant", f"/tenants?user={user.name}", ".quotas"),
        View("system", "/system", "main .tabs, main [role=tablist]"),
        View("passes", "/system?tab=passes", "main", operator_only=True),
        View("configuration", "/system?tab=configuration", "main pre", operator_only=True),
        View("limits", "/system?tab=limits", "main"),
        View("versions", "/system?tab=versions", "main dl"),
        View("nothing", "/no-such-page", ".empty"),
    ]


NAMES = [
    "overview", "traces", "requests", "trace", "flame", "span-table", "compare", "logs", "line", "panels",
    "continuous-batching", "catalogue", "metric", "runs", "run", "samplers", "playground", "tenants", "tenant", "system",
    "passes", "configuration", "limits", "versions", "nothing",
]
