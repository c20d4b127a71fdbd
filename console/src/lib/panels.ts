// Panels: charts of metrics as data, so that presets, a user's own panels and addresses are the same thing.

import type { MetricAnswer, MetricFunction, MetricType } from "../api/types.ts";
import type { Quantity } from "./units.ts";

export interface Query {
  metric: string;
  fn?: MetricFunction;
  by?: string[];
  where?: Record<string, string>;
  /** A name for the series; label values are added. */
  label?: string;
  /**
   * The server adds the series of a group up, which means nothing for shares and ages. These labels are asked for, too,
   * and the series that differ in them only are folded here.
   */
  fold?: { over: string[]; by: "mean" | "max" };
  /** Divides by this metric's values, group by group (by the same labels), or by its one series. */
  over?: { metric: string; fn?: MetricFunction; where?: Record<string, string>; by?: string[] };
}

export interface Panel {
  id: string;
  title: string;
  /** What the panel answers, in a sentence. */
  about?: string;
  queries: Query[];
  /** The unit of the values where it is not that of the first metric. */
  unit?: string;
  plain?: boolean;
  kind?: "line" | "area" | "stack";
  yMax?: number;
  log?: boolean;
}

export interface Board {
  id: string;
  title: string;
  panels: Panel[];
}

/** What is shown of a metric unless the reader chooses. */
export function defaultFunction(type: MetricType): MetricFunction {
  return type === "counter" ? "rate" : type === "histogram" ? "p95" : "last";
}

export function functionsOf(type: MetricType): MetricFunction[] {
  if (type === "counter") return ["rate", "increase"];
  if (type === "histogram") return ["p50", "p90", "p95", "p99", "mean_value", "rate", "increase"];
  return ["last", "mean", "max"];
}

export const functionNames: Record<MetricFunction, string> = {
  rate: "rate per second",
  increase: "increase",
  last: "value",
  mean: "mean",
  max: "maximum",
  mean_value: "mean",
  p50: "median (p50)",
  p90: "p90",
  p95: "p95",
  p99: "p99",
};

/** The unit of what a function makes of a metric. */
export function quantityOf(unit: string, type: MetricType, fn: MetricFunction, plain = false): Quantity {
  if (fn === "rate") return type === "histogram" ? { unit: "", perSecond: true } : { unit, perSecond: true };
  if (fn === "increase" && type === "histogram") return { unit: "" };
  return { unit, plain };
}

/** Metrics with the unit 1 that are no shares. */
export const plainMetrics = new Set(["tuft.training.loss", "tuft.training.grad_norm", "decode_prefill_ratio"]);

export interface PanelParams {
  from: string;
  until: string;
  step: number;
}

export function queryParams(query: Pick<Query, "metric" | "fn" | "by" | "where" | "fold">, range: PanelParams) {
  return {
    name: query.metric,
    fn: query.fn,
    by: [...(query.by ?? []), ...(query.fold?.over ?? [])].join(","),
    where: encodeWhere(query.where),
    from: range.from,
    until: range.until,
    step: range.step,
  };
}

/** "key:value,key:value". */
export function encodeWhere(where: Record<string, string> | undefined): string {
  return Object.entries(where ?? {})
    .map(([key, value]) => `${key}:${value}`)
    .join(",");
}

export function decodeWhere(text: string): Record<string, string> {
  const where: Record<string, string> = {};
  for (const pair of text.split(",")) {
    const colon = pair.indexOf(":");
    if (colon > 0) where[pair.slice(0, colon)] = pair.slice(colon + 1);
  }
  return where;
}

export interface NamedSeries {
  label: string;
  points: (number | null)[];
}

/** "p95 · sample · ok": the query's word and the values of its labels; the metric's name if there is neither. */
export function seriesLabel(query: Query, labels: Record<string, string>, fallback: string): string {
  // Only workers' series have this label.
  const values = Object.entries(labels)
    .map(([key, value]) => value || (key === "worker" ? "server" : ""))
    .filter(Boolean);
  return [query.label, ...values].filter(Boolean).join(" · ") || fallback;
}

/** Names the series of an answer, and divides them by another where the query asks for a quotient. */
export function combine(query: Query, answer: MetricAnswer, over?: MetricAnswer): NamedSeries[] {
  return foldSeries(query, answer.series).map((series) => {
    const label = seriesLabel(query, series.labels, query.label ?? "");
    if (!over) return { label, points: series.points };
    const other =
      over.series.find((candidate) => sameLabels(candidate.labels, series.labels)) ??
      (over.series.length === 1 ? over.series[0] : undefined);
    return { label, points: divide(series.points, other?.points ?? [], (answer.start - over.start) / answer.step) };
  });
}

/** Folds series that are the same but for the labels of `query.fold`. */
export function foldSeries(query: Query, series: MetricAnswer["series"]): MetricAnswer["series"] {
  const { fold } = query;
  if (!fold) return series;
  const groups = new Map<string, MetricAnswer["series"]>();
  for (const one of series) {
    const labels = Object.fromEntries(Object.entries(one.labels).filter(([key]) => !fold.over.includes(key)));
    const key = JSON.stringify(labels);
    groups.set(key, [...(groups.get(key) ?? []), { labels, points: one.points }]);
  }
  return [...groups.values()].map((group) => ({
    labels: group[0]!.labels,
    points: group[0]!.points.map((_, i) => {
      const known = group.map((one) => one.points[i] ?? null).filter((value): value is number => value !== null);
      if (!known.length) return null;
      return fold.by === "max" ? Math.max(...known) : known.reduce((sum, value) => sum + value, 0) / known.length;
    }),
  }));
}

function sameLabels(a: Record<string, string>, b: Record<string, string>): boolean {
  return Object.keys(a).length === Object.keys(b).length && Object.entries(a).every(([key, value]) => b[key] === value);
}

/** Nothing divided by nothing is nothing, not zero: no request failed where no request was. */
export function divide(points: (number | null)[], by: (number | null)[], offset = 0): (number | null)[] {
  return points.map((value, i) => {
    const other = by[i + Math.round(offset)];
    if (other === null || other === undefined || other === 0) return null;
    return (value ?? 0) / other;
  });
}

/** Puts series with different starts on one axis; the step is that of all. Returns x in seconds. */
export function align(parts: { start: number; step: number; series: NamedSeries[] }[]): {
  x: number[];
  series: NamedSeries[];
} {
  const used = parts.filter((part) => part.series.length > 0);
  if (!used.length) return { x: [], series: [] };
  const step = used[0]!.step;
  const start = Math.min(...used.map((part) => part.start));
  const count = Math.max(
    ...used.map(
      (part) => Math.round((part.start - start) / step) + Math.max(...part.series.map((one) => one.points.length)),
    ),
  );
  const x = Array.from({ length: count }, (_, i) => (start + i * step) / 1e6);
  const series = used.flatMap((part) => {
    const lead = Math.round((part.start - start) / step);
    return part.series.map((one) => ({
      label: one.label,
      points: Array.from({ length: count }, (_, i) => one.points[i - lead] ?? null),
    }));
  });
  return { x, series };
}

/** The address of a metric's own page. */
export function exploreParams(query: Query): Record<string, string | undefined> {
  return {
    metric: query.metric,
    fn: query.fn,
    by: query.by?.join(",") || undefined,
    where: encodeWhere(query.where) || undefined,
  };
}

// ---- a user's own panels, in the browser's storage and in addresses

export function encodePanels(panels: Panel[]): string {
  return JSON.stringify(panels.map((panel) => [panel.title, panel.kind ?? "line", panel.queries.map(compact)]));
}

const compact = (query: Query) => [query.metric, query.fn ?? "", (query.by ?? []).join(","), encodeWhere(query.where)];

const kinds = ["line", "area", "stack"];

/** Reads what encodePanels() wrote; anything else, such as a damaged address, gives no panel. */
export function decodePanels(text: string): Panel[] {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return [];
  }
  if (!Array.isArray(value)) return [];
  const panels: Panel[] = [];
  for (const [i, item] of value.slice(0, 50).entries()) {
    if (!Array.isArray(item) || typeof item[0] !== "string" || !Array.isArray(item[2])) continue;
    const queries = item[2].slice(0, 10).flatMap((query: unknown): Query[] => {
      if (!Array.isArray(query) || !query.every((part) => typeof part === "string") || !query[0]) return [];
      const [metric, fn, by, where] = query as string[];
      return [
        {
          metric: metric!,
          ...(fn ? { fn: fn as MetricFunction } : {}),
          by: by ? by.split(",") : [],
          where: decodeWhere(where ?? ""),
        },
      ];
    });
    const kind = kinds.includes(item[1]) ? (item[1] as Panel["kind"]) : "line";
    if (queries.length) panels.push({ id: `mine-${i}`, title: item[0], kind, queries });
  }
  return panels;
}
