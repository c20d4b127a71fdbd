// A trace of as many spans as its id says, to see that the pictures stay smooth: /traces/1a26e100000 has 100,000.

import { makeLargeTrace } from "../src/trace/sample.ts";

const pattern = /^1a26e(\d{1,6})$/;
const made = new Map<string, unknown>();

export function largeTrace(id: string): unknown {
  const match = pattern.exec(id);
  if (!match) return null;
  if (!made.has(id)) {
    const spans = makeLargeTrace(Number(match[1]));
    const root = spans[0];
    made.set(id, {
      trace_id: id,
      start: root?.start ?? 0,
      duration: root?.duration ?? 0,
      truncated: false,
      spans,
      logs: [],
      linked_from: [],
      critical_path: spans
        .slice(1, 40)
        .map((span) => ({ span_id: span.span_id, start: span.start, duration: span.duration })),
      explanation: null,
    });
  }
  return made.get(id);
}
