// Rates and latencies of spans over time: what a user may see of the work of the server, which is their own.

import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { observe } from "../api/client.ts";
import type { SpanSeries } from "../api/types.ts";
import { useApi } from "../api/use_api.ts";
import { range } from "../app/state.ts";
import type { Quantity } from "../lib/units.ts";
import type { Params } from "../lib/url.ts";
import { Card, ErrorBox, Link, Skeleton, Stale } from "./basics.tsx";
import { Chart, timesOf } from "./chart.tsx";
import { paceOf, useStep } from "./panel.tsx";

export type SpanFunction = "count" | "errors" | "rate" | "mean" | "p50" | "p95" | "p99" | "busy";

/** One operation from its acceptance to its end, of the SDK or an OpenAI client. Spans of HTTP requests end earlier. */
export const operationSpan = "future_store.execute_operation|oai.proxy_inference";

export interface SpanQuery {
  fn: SpanFunction;
  by?: "" | "name" | "operation" | "user" | "base_model";
  filters?: Params;
}

export function spanQuantity(fn: SpanFunction): Quantity {
  if (fn === "rate") return { unit: "", perSecond: true };
  if (fn === "busy") return { unit: "", plain: true };
  if (fn === "count" || fn === "errors") return { unit: "" };
  return { unit: "s" };
}

const isTime = (fn: SpanFunction) => !["count", "errors", "rate", "busy"].includes(fn);

/** The answer in the units of charts: seconds. */
export function useSpanSeries({ fn, by = "", filters = {} }: SpanQuery, every = 10_000, points = 120) {
  const { from, until } = range.value;
  const step = useStep(points);
  const path = observe("/traces/series", { fn, by, ...filters, from, until, step });
  const answer = useApi<SpanSeries>(path, { every: paceOf(every, step) });
  const chart = useMemo(() => {
    if (!answer.data) return null;
    const { start, step: given } = answer.data;
    // In the order of their names: the same things have the same colours in charts of the same kind.
    const series = [...answer.data.series].sort((a, b) => a.key.localeCompare(b.key));
    const count = Math.max(0, ...series.map((one) => one.points.length));
    return {
      x: timesOf(start, given, count),
      series: series.map((one) => ({
        label: one.key || (by ? "none" : ""),
        points: isTime(fn) ? one.points.map((value) => (value === null ? null : value / 1e6)) : one.points,
      })),
      quantity: spanQuantity(fn),
      whole: fn === "count" || fn === "errors",
    };
  }, [answer.data, fn, by]);
  return { ...answer, chart };
}

interface SpanCardProps {
  title: string;
  query: SpanQuery;
  /** The page that explains the chart. */
  to: string;
  params?: Params;
  kind?: "line" | "area" | "stack" | "bars";
  height?: number;
  actions?: ComponentChildren;
  empty?: string;
}

export function SpanCard({ title, query, to, params, kind = "line", height = 170, actions, empty }: SpanCardProps) {
  const { chart, error, reload } = useSpanSeries(query);
  return (
    <Card
      label={title}
      title={
        <Link to={to} params={params}>
          {title}
        </Link>
      }
      actions={
        <>
          {chart && <Stale error={error} />}
          {actions}
        </>
      }
    >
      {error && !chart ? (
        <ErrorBox error={error} retry={reload} />
      ) : chart ? (
        <Chart label={title} {...chart} kind={kind} height={height} empty={empty} />
      ) : (
        <Skeleton height={height} />
      )}
    </Card>
  );
}
