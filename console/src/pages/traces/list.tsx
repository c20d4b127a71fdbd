// The traces that meet a filter: how long they take, how many there are, and which.

import { useEffect, useMemo, useState } from "preact/hooks";
import { getJson, observe, who } from "../../api/client.ts";
import type { DurationHistogram, Overview, SpanSeries, TracePage, TraceSummary } from "../../api/types.ts";
import { useApi } from "../../api/use_api.ts";
import { navigate, useChoice, useParams } from "../../app/router.ts";
import { range, resolvedRange } from "../../app/state.ts";
import type { FilterKey } from "../../lib/query.ts";
import { stepFor } from "../../lib/time.ts";
import { formatDuration, formatNumber } from "../../lib/units.ts";
import { workColour, workKind } from "../../trace/palette.ts";
import { Badge, Card, Empty, ErrorBox, Link, Segments, Skeleton, Stale, Time } from "../../ui/basics.tsx";
import { Chart, timesOf } from "../../ui/chart.tsx";
import { useTheme } from "../../ui/colors.ts";
import { FilterBar, filterNames } from "../../ui/filter_bar.tsx";
import { operationSpan } from "../../ui/span_chart.tsx";
import { type Column, DataTable, useNarrow } from "../../ui/table.tsx";
import { held, hold } from "./compare_with.tsx";
import { Histogram } from "./histogram.tsx";
import "./traces.css";

const OPERATIONS = [
  "sample",
  "forward",
  "forward_backward",
  "optim_step",
  "save_weights",
  "save_weights_for_sampler",
  "load_weights",
  "create_model",
];
const PAGE = 100;
const EVERY = 3000;

function useFilterKeys(): FilterKey[] {
  const overview = useApi<Overview>(observe("/overview"));
  const models = overview.data?.models.map((model) => model.base_model) ?? [];
  return useMemo(
    () => [
      { key: "name", label: "Name", example: "of a span; ends in * for a beginning" },
      { key: "status", label: "Status", values: ["ok", "error"] },
      { key: "duration", label: "Duration", duration: true, example: ">2s or <50ms" },
      { key: "operation", label: "Operation", values: OPERATIONS },
      { key: "base_model", label: "Base model", values: models },
      ...(who.value?.operator ? [{ key: "user", label: "User", example: "who asked" }] : []),
      { key: "session", label: "Session", example: "its id" },
      { key: "run", label: "Run", example: "id of a training run" },
      { key: "sampler", label: "Sampler", example: "id of a sampling session" },
      { key: "request", label: "Request", example: "id of a request" },
      { key: "service", label: "Service", example: "such as tuft" },
    ],
    [models.join(), who.value?.operator],
  );
}

/** What the page is about, unless the filter names a span. Most requests only ask whether an operation has ended. */
const SCOPES = {
  operations: { name: operationSpan, unit: "{operation}", label: "Operations" },
  requests: { name: "POST *|GET *|DELETE *|PUT *|PATCH *", unit: "{request}", label: "All requests" },
  all: { name: "", unit: "{span}", label: "Everything" },
} as const;
type Scope = keyof typeof SCOPES;
const SCOPE_NAMES = Object.keys(SCOPES) as Scope[];

export default function TracesPage() {
  const keys = useFilterKeys();
  const filters = useParams(filterNames(keys));
  const [scope, setScope] = useChoice<Scope>("of", SCOPE_NAMES, "operations");
  const time = { from: range.value.from, until: range.value.until };
  const query = { ...time, ...filters };
  const name = filters["name"] ?? SCOPES[scope].name;
  const listQuery = { ...query, name };
  const { min_duration: min, max_duration: max, ...withoutDuration } = filters;
  const histogram = useApi<DurationHistogram>(observe("/traces/histogram", { ...time, ...withoutDuration, name }), {
    every: 5000,
  });
  const unit = filters["name"] ? "{span}" : SCOPES[scope].unit;
  return (
    <>
      <div class="row filter-row">
        {!filters["name"] && (
          <Segments
            label="Which traces"
            value={scope}
            options={SCOPE_NAMES.map((one) => [one, SCOPES[one].label])}
            onChange={setScope}
          />
        )}
        <FilterBar keys={keys} placeholder="Filter traces: operation:sample duration:>1s status:error words" />
      </div>
      <div class="grid-2">
        <Card
          class="durations"
          title="Durations"
          actions={
            <>
              {histogram.data && <Stale error={histogram.error} />}
              <DurationWords min={min} max={max} />
            </>
          }
        >
          {histogram.data ? (
            <Histogram answer={histogram.data} min={min ? Number(min) : null} max={max ? Number(max) : null} />
          ) : histogram.error ? (
            <ErrorBox error={histogram.error} retry={histogram.reload} />
          ) : (
            <Skeleton height={150} />
          )}
        </Card>
        <SeriesCard query={listQuery} unit={unit} />
      </div>
      <TraceList query={listQuery} filtered={Object.keys(filters).length > 0} />
    </>
  );
}

function DurationWords({ min, max }: { min: string | undefined; max: string | undefined }) {
  if (!min && !max) return <span class="muted">drag over the bars to filter</span>;
  return (
    <span class="muted">
      {min ? formatDuration(Number(min)) : "0"} to {max ? formatDuration(Number(max)) : "any"}
    </span>
  );
}

const MEASURES = ["rate", "p95", "errors"] as const;
type Measure = (typeof MEASURES)[number];

function SeriesCard({ query, unit }: { query: Record<string, string>; unit: string }) {
  const [measure, setMeasure] = useChoice<Measure>("measure", MEASURES, "p95");
  const [by, setBy] = useChoice("by", ["none", "operation", "base_model", "user", "name"] as const, "operation");
  const now = resolvedRange();
  const step = stepFor(now, 90);
  const path = observe("/traces/series", { ...query, fn: measure, by: by === "none" ? "" : by, step });
  const { data, error, reload } = useApi<SpanSeries>(path, { every: 5000 });
  const x = useMemo(() => (data ? timesOf(data.start, data.step, data.series[0]?.points.length ?? 0) : []), [data]);
  const series = useMemo(
    () =>
      (data?.series ?? []).map((one) => ({
        label: one.key || (by === "none" ? "all" : "other"),
        // Durations come in microseconds; the axis speaks of seconds.
        points: measure === "p95" ? one.points.map((value) => (value === null ? null : value / 1e6)) : one.points,
      })),
    [data, measure, by],
  );
  return (
    <Card
      title="Over time"
      actions={
        <>
          {data && <Stale error={error} />}
          <Segments
            label="Measure"
            value={measure}
            options={[
              ["rate", "Rate"],
              ["p95", "p95"],
              ["errors", "Errors"],
            ]}
            onChange={setMeasure}
          />
          <select
            class="select series-by"
            aria-label="Group by"
            value={by}
            onChange={(event) => setBy(event.currentTarget.value as typeof by)}
          >
            <option value="none">together</option>
            <option value="operation">by operation</option>
            <option value="base_model">by base model</option>
            {who.value?.operator && <option value="user">by user</option>}
            <option value="name">by name</option>
          </select>
        </>
      }
    >
      {error && !data ? (
        <ErrorBox error={error} retry={reload} />
      ) : (
        <Chart
          label={
            measure === "rate" ? "Number per second" : measure === "p95" ? "95th percentile of the duration" : "Failed"
          }
          x={x}
          series={series}
          height={132}
          quantity={measure === "p95" ? { unit: "s" } : measure === "rate" ? { unit, perSecond: true } : { unit }}
          kind={measure === "errors" ? "bars" : "line"}
          yMin={0}
        />
      )}
    </Card>
  );
}

/** The newest page is asked again and again; older pages are added at the end when the reader comes near. */
function useTraces(query: Record<string, string>) {
  const path = observe("/traces", { ...query, limit: PAGE });
  const newest = useApi<TracePage>(path, { every: EVERY });
  const [older, setOlder] = useState<{
    path: string;
    traces: TraceSummary[];
    next: string | null;
    busy: boolean;
  } | null>(null);
  const mine = older?.path === path ? older : null;
  useEffect(() => setOlder(null), [path]);
  const traces = useMemo(() => {
    const seen = new Set<string>();
    return [...(newest.data?.traces ?? []), ...(mine?.traces ?? [])].filter((trace) => {
      if (seen.has(trace.trace_id)) return false;
      seen.add(trace.trace_id);
      return true;
    });
  }, [newest.data, mine]);
  const next = mine ? mine.next : (newest.data?.next ?? null);
  const more = async () => {
    if (!next || mine?.busy) return;
    const before = mine ?? { path, traces: [], next, busy: false };
    setOlder({ ...before, busy: true });
    try {
      const page = await getJson<TracePage>(observe("/traces", { ...query, limit: PAGE, cursor: next }));
      setOlder({ path, traces: [...before.traces, ...page.traces], next: page.next, busy: false });
    } catch {
      // The page stays as it is; scrolling on tries again.
      setOlder({ ...before, busy: false });
    }
  };
  return { ...newest, traces, next, more };
}

function TraceList({ query, filtered }: { query: Record<string, string>; filtered: boolean }) {
  const { traces, next, more, error, loading, reload } = useTraces(query);
  const isDark = useTheme();
  const narrow = useNarrow();
  const longest = Math.max(1, ...traces.map((trace) => trace.duration));
  const columns: Column<TraceSummary>[] = [
    {
      key: "start",
      title: "Started",
      width: "92px",
      sort: (row) => row.start,
      render: (row) => <Time at={row.start} />,
    },
    {
      key: "name",
      title: "Trace",
      width: narrow ? "minmax(100px, 1fr)" : "minmax(150px, 2fr)",
      sort: (row) => row.root.name,
      render: (row) => (
        <span class="trace-name" title={row.root.name}>
          <span
            class="trace-tone"
            style={{ backgroundColor: workColour(operationTone(row), isDark ? "dark" : "light") }}
            aria-hidden="true"
          />
          <span class="clip">{narrow ? withoutRoute(row.root.name) : row.root.name}</span>
          {row.failed_spans > 0 && (
            <Badge tone="bad" title={`${row.failed_spans} failed spans`}>
              {row.failed_spans}
            </Badge>
          )}
        </span>
      ),
    },
    {
      key: "duration",
      title: "Duration",
      width: narrow ? "84px" : "minmax(130px, 1.2fr)",
      right: true,
      sort: (row) => row.duration,
      render: (row) => (
        <span class="duration-bar">
          <span class="track" aria-hidden="true">
            <span
              style={{
                width: `${Math.max(0.8, (row.duration / longest) * 100)}%`,
                backgroundColor: workColour(operationTone(row), isDark ? "dark" : "light"),
              }}
            />
          </span>
          <span class="value">{formatDuration(row.duration)}</span>
        </span>
      ),
    },
    {
      key: "operation",
      title: "Operation",
      width: "minmax(90px, 0.8fr)",
      wide: true,
      sort: (row) => row.operation,
      render: (row) => row.operation ?? "",
    },
    {
      key: "model",
      title: "Base model",
      width: "minmax(90px, 1fr)",
      wide: true,
      sort: (row) => row.base_model,
      render: (row) => row.base_model ?? "",
    },
    {
      key: "user",
      title: "User",
      width: "minmax(64px, 0.6fr)",
      wide: true,
      sort: (row) => row.user,
      render: (row) => row.user || <span class="muted">shared</span>,
    },
    {
      key: "spans",
      title: "Spans",
      width: "72px",
      right: true,
      wide: true,
      sort: (row) => row.spans,
      render: (row) => formatNumber(row.spans),
    },
  ];
  if (error && traces.length === 0) return <ErrorBox error={error} retry={reload} />;
  return (
    <>
      {held.value && (
        <div class="compare-hint" role="status">
          Open a trace to compare it with{" "}
          <Link to={`/traces/${held.value.id}`}>
            {held.value.name} {held.value.id.slice(0, 8)}
          </Link>
          .
          <button type="button" class="btn quiet small" onClick={() => hold(null)}>
            Cancel
          </button>
        </div>
      )}
      <DataTable
        label="Traces"
        rows={traces}
        columns={columns}
        rowKey={(row) => row.trace_id}
        onOpen={(row) => {
          const span = filtered && row.match ? row.match.span_id : null;
          navigate(`/traces/${row.trace_id}`, span ? { span } : {});
        }}
        rowClass={(row) => (row.failed_spans > 0 ? "failed" : undefined)}
        onEnd={next ? more : undefined}
        empty={loading ? <Skeleton height={200} /> : <NoTraces filtered={filtered} />}
        foot={
          traces.length > 0
            ? next
              ? "Scroll for older traces"
              : `${formatNumber(traces.length)} traces, all there are in this time`
            : null
        }
      />
    </>
  );
}

/** "POST /api/v1/asample" is "asample" where there is little room. */
function withoutRoute(name: string): string {
  return name.replace(/^[A-Z]+ (?:\/oai)?\/api\/v1\//, "");
}

function operationTone(row: TraceSummary) {
  return workKind({ name: row.operation ?? row.root.name, kind: "internal", service: row.root.service });
}

function NoTraces({ filtered }: { filtered: boolean }) {
  return (
    <Empty title={filtered ? "No trace meets the filter" : "No traces in this time range"}>
      <p>
        {filtered
          ? "Remove a condition, or choose a longer time range at the top."
          : "Send a request with any client, and its trace appears here within a second. Or choose a longer time range at the top."}
      </p>
    </Empty>
  );
}
