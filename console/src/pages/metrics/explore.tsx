// One metric: what it means, and a chart of it by function, labels and conditions, beside an earlier time.

import { useMemo, useState } from "preact/hooks";
import { observe } from "../../api/client.ts";
import type { Exemplars, MetricAnswer, MetricFunction, MetricInfo } from "../../api/types.ts";
import { useApi } from "../../api/use_api.ts";
import { navigate, setParams, useChoice, useList, useParam } from "../../app/router.ts";
import { range, resolvedRange } from "../../app/state.ts";
import {
  decodeWhere,
  defaultFunction,
  encodeWhere,
  functionNames,
  functionsOf,
  plainMetrics,
  quantityOf,
  queryParams,
  seriesLabel,
} from "../../lib/panels.ts";
import { dimensionOf, formatQuantity, type Quantity, unitWord } from "../../lib/units.ts";
import { Badge, Card, Copy, Empty, ErrorBox, Facts, Link, Segments, Skeleton, Stale, Time } from "../../ui/basics.tsx";
import { Chart, type Mark, type Series, timesOf } from "../../ui/chart.tsx";
import { ChevronLeft, PlusIcon } from "../../ui/icons.tsx";
import { useStep } from "../../ui/panel.tsx";
import { addPanels } from "./saved.ts";

const earlierHours: Record<string, number> = { "1h": 1, "1d": 24, "7d": 168 };
const compareChoices = ["", "before", "1h", "1d", "7d"] as const;
const kinds = ["line", "area", "stack"] as const;

interface ExploreProps {
  name: string;
  metrics: MetricInfo[];
  wide: boolean;
  setWide: (wide: boolean) => void;
}

export function Explore({ name, metrics, wide, setWide }: ExploreProps) {
  const info = metrics.find((metric) => metric.name === name || metric.prometheus_name === name);
  if (!info)
    return (
      <div class="card">
        <Empty title={`The server has no metric ${name}`}>
          <p>
            A metric is listed from its first value on. Those that exist are under{" "}
            <Link to="/metrics" params={{ view: "catalogue" }}>
              all metrics
            </Link>
            .
          </p>
        </Empty>
      </div>
    );
  return <Known info={info} wide={wide} setWide={setWide} />;
}

/** How far back the compared time lies, in microseconds; 0: nothing is compared. */
function useOffset(compare: string): number {
  const text = range.value;
  return useMemo(() => {
    const { from, until } = resolvedRange();
    return compare === "before" ? until - from : (earlierHours[compare] ?? 0) * 3600e6;
  }, [compare, text.from, text.until]);
}

function Known({ info, wide, setWide }: { info: MetricInfo; wide: boolean; setWide: (wide: boolean) => void }) {
  const functions = functionsOf(info.type);
  const [fn, setFunction] = useChoice<MetricFunction>("fn", functions, defaultFunction(info.type));
  const [by, setBy] = useList("by");
  const [whereText, setWhere] = useParam("where");
  const [compare, setCompare] = useChoice("compare", compareChoices, "");
  const [kind, setKind] = useChoice("kind", kinds, "line");
  const [log, setLog] = useParam("log");
  const where = decodeWhere(whereText);
  const step = useStep(240);
  const offset = useOffset(compare);
  const query = { metric: info.name, fn, by, where };
  const { from, until } = range.value;
  const answer = useApi<MetricAnswer>(observe("/metrics/query", queryParams(query, { from, until, step })), {
    every: 5000,
  });
  const now = useMemo(resolvedRange, [from, until, compare]);
  const earlier = useApi<MetricAnswer>(
    offset
      ? observe(
          "/metrics/query",
          queryParams(query, {
            from: String(Math.floor(now.from - offset)),
            until: String(Math.ceil(now.until - offset)),
            step,
          }),
        )
      : null,
  );
  const exemplars = useApi<Exemplars>(
    info.type === "histogram"
      ? observe("/metrics/exemplars", { name: info.name, where: whereText, from, until })
      : null,
    { every: 15_000 },
  );
  const quantity = quantityOf(info.unit, info.type, fn, plainMetrics.has(info.name));
  const isValue = !["rate", "increase"].includes(fn);
  const chart = useMemo(
    () => chartOf(info, answer.data, offset ? earlier.data : undefined, offset),
    [info.name, answer.data, earlier.data, offset],
  );
  const marks = useMemo(
    () => (isValue ? marksOf(exemplars.data, quantity) : []),
    [exemplars.data, isValue, quantity.unit],
  );
  const labels = Object.keys(info.labels);
  return (
    <div class="stack">
      <Card label={info.name}>
        <div class="row">
          <button
            type="button"
            class="btn quiet icon small hide-phone"
            aria-pressed={wide}
            aria-label="Hide the list of metrics"
            title="Hide or show the list"
            onClick={() => setWide(!wide)}
          >
            <ChevronLeft />
          </button>
          <Link to="/metrics" params={{ view: "catalogue" }} class="btn small only-phone">
            All metrics
          </Link>
          <h2 class="mono clip">{info.name}</h2>
          <Badge>{info.type}</Badge>
          <span class="muted">{unitWord(info.unit) || info.unit}</span>
        </div>
        <p class="metric-about">{info.description}</p>
        <div class="row controls">
          <label class="field inline">
            Show
            <select
              class="select"
              value={fn}
              onChange={(event) => setFunction(event.currentTarget.value as MetricFunction)}
            >
              {functions.map((one) => (
                <option key={one} value={one}>
                  {functionNames[one]}
                </option>
              ))}
            </select>
          </label>
          <label class="field inline">
            Compare with
            <select
              class="select"
              value={compare}
              onChange={(event) => setCompare(event.currentTarget.value as typeof compare)}
            >
              <option value="">nothing</option>
              <option value="before">the time before</option>
              <option value="1h">1 hour earlier</option>
              <option value="1d">1 day earlier</option>
              <option value="7d">1 week earlier</option>
            </select>
          </label>
          <Segments
            label="Form"
            value={kind}
            options={[
              ["line", "Lines"],
              ["area", "Area"],
              ["stack", "Stacked"],
            ]}
            onChange={setKind}
          />
          <button
            type="button"
            class="btn"
            aria-pressed={log === "1"}
            onClick={() => setLog(log === "1" ? "" : "1")}
            title="Logarithmic axis"
          >
            Log
          </button>
          <Save info={info} fn={fn} by={by} where={where} kind={kind} />
        </div>
        {labels.length > 0 && (
          <div class="row controls">
            <span class="muted">Group by</span>
            {labels.map((label) => (
              <button
                type="button"
                key={label}
                class="btn small"
                aria-pressed={by.includes(label)}
                onClick={() => setBy(by.includes(label) ? by.filter((one) => one !== label) : [...by, label])}
              >
                {label}
              </button>
            ))}
            {Object.entries(info.labels).map(([label, values]) => (
              <select
                key={label}
                class="select small"
                aria-label={`Only ${label}`}
                value={where[label] ?? ""}
                onChange={(event) => setWhere(encodeWhere(changed(where, label, event.currentTarget.value)) || null)}
              >
                <option value="">any {label}</option>
                {values.map((value) => (
                  <option key={value} value={value}>
                    {value}
                  </option>
                ))}
              </select>
            ))}
          </div>
        )}
        {answer.data && <Stale error={answer.error} />}
        {answer.error && !answer.data ? (
          <ErrorBox error={answer.error} retry={answer.reload} />
        ) : chart ? (
          <Chart
            label={`${info.name}, ${functionNames[fn]}`}
            x={chart.x}
            series={chart.series}
            quantity={quantity}
            kind={kind}
            height={300}
            log={log === "1"}
            marks={marks}
          />
        ) : (
          <Skeleton height={300} />
        )}
        {info.type === "gauge" &&
          ["share", "percent"].includes(dimensionOf(info.unit)) &&
          labels.length > by.length && (
            <p class="muted">Series of one group are added up; group by its labels to see each share.</p>
          )}
        {answer.data?.truncated && (
          <p class="muted">There are more series than are shown. Choose a value of a label.</p>
        )}
      </Card>
      {info.type === "histogram" && (
        <ExemplarList
          data={exemplars.data}
          quantity={quantityOf(info.unit, info.type, "p95", plainMetrics.has(info.name))}
        />
      )}
      <Card title="In Prometheus and elsewhere">
        <Facts
          items={[
            ["Name", <Copy key="name" text={info.name} label="name" />],
            ["In Prometheus", <Copy key="prometheus" text={info.prometheus_name} label="name" />],
            ["PromQL", <Copy key="promql" text={promql(info, fn, by, where)} label="query" />],
            [
              "Labels",
              labels.length ? labels.map((label) => `${label} (${info.labels[label]!.length})`).join(", ") : "none",
            ],
          ]}
        />
      </Card>
    </div>
  );
}

function changed(where: Record<string, string>, label: string, value: string): Record<string, string> {
  const { [label]: _, ...rest } = where;
  return value ? { ...rest, [label]: value } : rest;
}

function chartOf(
  info: MetricInfo,
  answer: MetricAnswer | undefined,
  earlier: MetricAnswer | undefined,
  offset: number,
) {
  if (!answer) return null;
  const count = Math.max(0, ...answer.series.map((one) => one.points.length));
  const series: Series[] = answer.series.map((one, i) => ({
    label: seriesLabel({ metric: info.name }, one.labels, info.name),
    points: one.points,
    color: i,
  }));
  for (const one of earlier?.series ?? []) {
    const label = seriesLabel({ metric: info.name }, one.labels, info.name);
    const partner = series.find((candidate) => candidate.label === label);
    const lead = Math.round((earlier!.start + offset - answer.start) / answer.step);
    const points = Array.from({ length: count }, (_, i) => one.points[i - lead] ?? null);
    series.push({
      label: `${label}, earlier`,
      points,
      color: partner?.color ?? series.length,
      dash: [4, 3],
      faint: true,
    });
  }
  return { x: timesOf(answer.start, answer.step, count), series };
}

function marksOf(data: Exemplars | undefined, quantity: Quantity): Mark[] {
  return (data?.exemplars ?? []).map((one) => ({
    x: one.time / 1e6,
    y: one.value,
    title: `Exemplar ${formatQuantity(one.value, quantity)}: press for its trace`,
    onOpen: () => navigate(`/traces/${one.trace_id}`, { span: one.span_id }),
  }));
}

function ExemplarList({ data, quantity }: { data: Exemplars | undefined; quantity: Quantity }) {
  const largest = [...(data?.exemplars ?? [])].sort((a, b) => b.value - a.value).slice(0, 8);
  return (
    <Card title="Largest exemplars" actions={<span class="muted">each is one request with its trace</span>}>
      {largest.length === 0 ? (
        <p class="muted">No value of this time has a trace that was recorded.</p>
      ) : (
        <ul class="lines">
          {largest.map((one) => (
            <li key={one.trace_id + one.span_id + one.time}>
              <b class="exemplar-value">{formatQuantity(one.value, quantity)}</b>
              <Link to={`/traces/${one.trace_id}`} params={{ span: one.span_id }} class="mono clip grow">
                {one.trace_id}
              </Link>
              <span class="muted clip hide-phone">{Object.values(one.labels).join(" · ")}</span>
              <span class="muted line-time">
                <Time at={one.time} />
              </span>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

interface SaveProps {
  info: MetricInfo;
  fn: MetricFunction;
  by: string[];
  where: Record<string, string>;
  kind: (typeof kinds)[number];
}

function Save({ info, fn, by, where, kind }: SaveProps) {
  const [done, setDone] = useState(false);
  const title = [
    info.name,
    fn === defaultFunction(info.type) ? "" : fn,
    by.length ? `by ${by.join(", ")}` : "",
    ...Object.values(where),
  ]
    .filter(Boolean)
    .join(" ");
  return done ? (
    <button
      type="button"
      class="btn"
      onClick={() =>
        setParams({ metric: null, view: null, fn: null, by: null, where: null, kind: null, q: null, board: "mine" })
      }
    >
      Saved: see my panels
    </button>
  ) : (
    <button
      type="button"
      class="btn"
      onClick={() => {
        addPanels([{ id: "", title, kind, queries: [{ metric: info.name, fn, by, where }] }]);
        setDone(true);
      }}
    >
      <PlusIcon />
      Save panel
    </button>
  );
}

/** The same in PromQL, for those who take it to Grafana. */
export function promql(info: MetricInfo, fn: MetricFunction, by: string[], where: Record<string, string>): string {
  const label = (key: string) => key.replace(/[^a-zA-Z0-9_]/g, "_");
  const conditions = Object.entries(where).map(([key, value]) => `${label(key)}="${value}"`);
  const select = (suffix: string) =>
    `${info.prometheus_name}${suffix}${conditions.length ? `{${conditions.join(", ")}}` : ""}`;
  const group = by.length ? ` by (${by.map(label).join(", ")})` : "";
  const window = "[$__rate_interval]";
  if (info.type === "histogram") {
    const quantile = /^p(\d+)$/.exec(fn);
    if (quantile)
      return `histogram_quantile(${Number(quantile[1]) / 100}, sum by (${["le", ...by.map(label)].join(", ")}) (rate(${select("_bucket")}${window})))`;
    if (fn === "mean_value")
      return `sum${group} (rate(${select("_sum")}${window})) / sum${group} (rate(${select("_count")}${window}))`;
    return `sum${group} (${fn}(${select("_count")}${window}))`;
  }
  if (fn === "rate" || fn === "increase") return `sum${group} (${fn}(${select("")}${window}))`;
  const over = fn === "last" ? select("") : `${fn === "max" ? "max" : "avg"}_over_time(${select("")}${window})`;
  return `sum${group} (${over})`;
}
