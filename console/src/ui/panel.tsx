// A chart of metrics that fetches its own data, for boards and the overview.

import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { ApiError, getJson, observe } from "../api/client.ts";
import { isRecorded } from "../api/recorded.ts";
import type { MetricAnswer } from "../api/types.ts";
import { type Answer, useAsked } from "../api/use_api.ts";
import { range, resolvedRange } from "../app/state.ts";
import { align, combine, exploreParams, type Panel, plainMetrics, quantityOf, queryParams } from "../lib/panels.ts";
import { stepFor } from "../lib/time.ts";
import type { Quantity } from "../lib/units.ts";
import { Card, ErrorBox, Link, Skeleton, Stale } from "./basics.tsx";
import { Chart, type Series } from "./chart.tsx";

export interface PanelData {
  x: number[];
  series: Series[];
  quantity: Quantity;
  /** There are more series than the server answers with. */
  truncated: boolean;
}

/** The step of charts for the page's time range, in microseconds. */
export function useStep(points = 120): number {
  const text = range.value;
  return useMemo(() => stepFor(resolvedRange(), points), [text.from, text.until, points]);
}

/** A chart gains nothing from being asked for more often than twice a step, and stays lively at ten seconds. */
export const paceOf = (every: number, step: number): number => Math.max(every, Math.min(step / 2000, 10_000));

export function usePanel(
  panel: Panel | null,
  every: number,
  points = 120,
): Answer<(MetricAnswer | null)[]> & { chart: PanelData | null } {
  const { from, until } = range.value;
  const step = useStep(points);
  const parts = panel?.queries.flatMap((query) => [query, ...(query.over ? [query.over] : [])]);
  const paths = parts?.map((part) => observe("/metrics/query", queryParams(part, { from, until, step })));
  const names = parts?.map((part) => part.metric) ?? [];
  const answer = useAsked(
    paths?.join("\n") ?? null,
    (signal) => Promise.all(paths!.map((path, i) => metricOrNothing(names[i]!, path, signal))),
    { every: paceOf(every, step) },
  );
  const chart = useMemo(() => (panel && answer.data ? chartOf(panel, answer.data) : null), [panel, answer.data]);
  return { ...answer, chart };
}

/** A metric that nobody has recorded yet is unknown to the server: it has no data, which is no failure. */
async function metricOrNothing(name: string, path: string, signal: AbortSignal): Promise<MetricAnswer | null> {
  if (!(await isRecorded(name))) return null;
  try {
    return await getJson<MetricAnswer>(path, signal);
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}

function chartOf(panel: Panel, answers: (MetricAnswer | null)[]): PanelData {
  let at = 0;
  const parts = panel.queries.map((query) => {
    const main = answers[at++] ?? null;
    const over = query.over ? (answers[at++] ?? undefined) : undefined;
    const series = main && (over || !query.over) ? combine(query, main, over) : [];
    return { main, start: main?.start ?? 0, step: main?.step ?? 1, series };
  });
  const first = parts.find((part) => part.main)?.main;
  if (!first) return { x: [], series: [], quantity: { unit: "" }, truncated: false };
  const plain = panel.plain || plainMetrics.has(panel.queries[0]!.metric);
  const quantity: Quantity = panel.unit
    ? { unit: panel.unit, plain }
    : quantityOf(first.unit, first.type, first.fn, plain);
  const { x, series } = align(parts);
  // Several queries may give a series the same name; the second gets a number.
  const seen = new Map<string, number>();
  const named = series.map((one) => {
    const times = (seen.get(one.label) ?? 0) + 1;
    seen.set(one.label, times);
    return times > 1 ? { ...one, label: `${one.label} ${times}` } : one;
  });
  return { x, series: named, quantity, truncated: answers.some((one) => one?.truncated) };
}

interface PanelCardProps {
  panel: Panel;
  every?: number;
  height?: number;
  legend?: boolean;
  actions?: ComponentChildren;
  empty?: string;
}

export function PanelCard({ panel, every = 10_000, height = 170, legend = true, actions, empty }: PanelCardProps) {
  const { chart, error, reload } = usePanel(panel, every);
  return (
    <Card
      label={panel.title}
      title={
        <Link to="/metrics" params={exploreParams(panel.queries[0]!)} title={panel.about ?? "Explore this metric"}>
          {panel.title}
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
        <Chart
          label={panel.title}
          {...chart}
          kind={panel.kind ?? "line"}
          yMax={panel.yMax}
          log={panel.log}
          height={height}
          legend={legend}
          empty={empty}
        />
      ) : (
        <Skeleton height={height} />
      )}
    </Card>
  );
}
