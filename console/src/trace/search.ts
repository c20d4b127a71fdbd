// Which spans of a trace a text names.

import type { TraceSpan } from "./model.ts";
import { at, num, type TraceTree } from "./tree.ts";

export interface Matches {
  /** 1 for each span that matches. */
  readonly matched: Uint8Array;
  readonly count: number;
}

/**
 * The spans in whose name, service, worker, status or attributes all words of the text occur, without case. A word
 * `key=value` names an attribute and a part of its value. Returns null for an empty text: nothing is asked.
 */
export function searchSpans(tree: TraceTree, text: string): Matches | null {
  const words = text
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== "");
  if (words.length === 0) return null;
  const matched = new Uint8Array(tree.spans.length);
  let count = 0;
  for (let i = 0; i < tree.spans.length; ++i) {
    const span = at(tree.spans, i);
    if (words.every((word) => hasWord(span, word))) {
      matched[i] = 1;
      ++count;
    }
  }
  return { matched, count };
}

/** The next match after a span in the order of the rows, around the end; `step` is 1 or -1. NONE (-1) without any. */
export function nextMatch(tree: TraceTree, matches: Matches, from: number, step: 1 | -1): number {
  const count = tree.order.length;
  const begin = from < 0 ? (step === 1 ? -1 : count) : num(tree.place, from);
  for (let k = 1; k <= count; ++k) {
    const span = num(tree.order, (begin + step * k + count * 2) % count);
    if (matches.matched[span] === 1) return span;
  }
  return -1;
}

function hasWord(span: TraceSpan, word: string): boolean {
  if (span.name.toLowerCase().includes(word)) return true;
  const equals = word.indexOf("=");
  if (equals > 0) {
    const key = word.slice(0, equals);
    const value = word.slice(equals + 1);
    for (const [name, held] of Object.entries(span.attributes)) {
      if (name.toLowerCase().endsWith(key) && textOf(held).includes(value)) return true;
    }
    return false;
  }
  if (span.service.toLowerCase().includes(word) || span.worker.toLowerCase().includes(word)) return true;
  if (span.status_message.toLowerCase().includes(word) || (word === "failed" && span.failed)) return true;
  for (const held of Object.values(span.attributes)) {
    if (textOf(held).includes(word)) return true;
  }
  return false;
}

function textOf(value: unknown): string {
  return (typeof value === "string" ? value : (JSON.stringify(value) ?? "")).toLowerCase();
}
