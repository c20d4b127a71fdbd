"""The telemetry store against SQLite: the cost of a span, and queries over a million of them."""
import measure

SPANS, LOGS = 1_000_000, 100_000
QUERIES = [("the newest traces", dict(op="find", key="")),
           *((f"by {key}", dict(op="find", key=key)) for key in ("session", "run", "request", "user", "name", "failed",
                                                                 "duration")),
           ("a trace of 5,000 spans", dict(op="trace", rounds=20)),
           ("text in 100,000 log records", dict(op="text", rounds=20))]


def of_one(options, program, kind):
    directory = options.scratch / f"telemetry-store-{kind}"
    with measure.Child([program, kind, directory]) as child:
        cost = child.ask(op="ingest", spans=SPANS)
        cost.update(child.ask(op="logs", logs=LOGS))
        return cost, [] if kind == "full" else [child.ask(**asked) for _, asked in QUERIES]


def run(options):
    program = options.programs.parent / "bench" / "tuft_telemetry_store_bench"
    if not program.exists():
        raise measure.Skip("tuft_telemetry_store_bench is not built")
    options.scratch.mkdir(parents=True, exist_ok=True)
    costs, queries, raw = [], [], []
    for kind in ("segments", "full", "sqlite"):
        cost, answers = of_one(options, program, kind)
        costs.append([kind, f"{cost['cpu_us_per_span']:.2f}", f"{cost['cpu_us_per_span'] / 1e6 * 10_000:.1%}",
                      f"{cost['bytes_per_span']:.0f}", f"{cost['cpu_us_per_log']:.2f}"])
        raw.append(dict(kind=kind, cost=cost, queries=answers))
        for (title, _), answer in zip(QUERIES, answers):
            times = [f"{answer[name]:.1f}" for name in ("p50_ms", "p95_ms", "cpu_ms")]
            queries.append([title, kind, *times, answer["results"]])
    queries.sort(key=lambda row: [title for title, _ in QUERIES].index(row[0]))
    tables = [dict(title=f"Keeping {SPANS:,} spans with 12 attributes", columns=["store", "CPU us a span",
                   "of a core at 10,000 spans/s", "bytes a span", "CPU us a log record"], rows=costs),
              dict(title="Queries", columns=["query", "store", "p50 ms", "p95 ms", "CPU ms", "results"], rows=queries)]
    return dict(data=raw, tables=tables, notes=["full: segments with a limit of 128 MiB, so that old records leave all the time. Lists are the newest 100 traces with their summaries. SQLite: WAL, "
                "synchronous off, a transaction for each request of 500 spans; FTS5 finds words, the store any text. Each store is "
                "filled once; the times are those of a query asked many times."])
