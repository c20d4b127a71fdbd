// The log records and the events of a trace, by the span that they belong to.

import { NONE, type TraceTree } from "./tree.ts";

export type LogLevel = "debug" | "info" | "warning" | "error";

export interface TraceLog {
  readonly time: number;
  readonly level: string;
  readonly event: string;
  readonly body: string;
  readonly span_id: string | null;
}

const RANK: Readonly<Record<string, number>> = { debug: 0, info: 1, warning: 2, error: 3 };

export function levelRank(level: string): number {
  return RANK[level.toLowerCase()] ?? 1;
}

/** The numbers of the records of each span, in order of time. Records of unknown spans are left out. */
export function logsBySpan(tree: TraceTree, logs: readonly TraceLog[]): ReadonlyMap<number, readonly number[]> {
  const result = new Map<number, number[]>();
  logs.forEach((log, k) => {
    const span = log.span_id ? tree.find(log.span_id) : NONE;
    if (span === NONE) return;
    const list = result.get(span);
    if (list) list.push(k);
    else result.set(span, [k]);
  });
  for (const list of result.values()) list.sort((x, y) => (logs[x]?.time ?? 0) - (logs[y]?.time ?? 0));
  return result;
}
