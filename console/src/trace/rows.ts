// The rows of a waterfall: the spans of the tree's walk without what lies below collapsed spans.

import { NONE, num, type TraceTree } from "./tree.ts";

export interface Rows {
  /** The span of each row. */
  readonly spans: Int32Array;
  /** The row of each span, or NONE below a collapsed one. */
  readonly rowOf: Int32Array;
}

export function layoutRows(tree: TraceTree, collapsed: ReadonlySet<number>): Rows {
  const count = tree.order.length;
  const rowOf = new Int32Array(count).fill(NONE);
  if (collapsed.size === 0) {
    for (let k = 0; k < count; ++k) rowOf[num(tree.order, k)] = k;
    return { spans: tree.order, rowOf };
  }
  const spans = new Int32Array(count);
  let rows = 0;
  for (let k = 0; k < count; ) {
    const span = num(tree.order, k);
    rowOf[span] = rows;
    spans[rows++] = span;
    k = collapsed.has(span) ? num(tree.subtreeEnd, span) : k + 1;
  }
  return { spans: spans.subarray(0, rows), rowOf };
}

/** The row that shows a span: its own, or that of the nearest span above it that has one. */
export function nearestRow(tree: TraceTree, rows: Rows, span: number): number {
  for (let at = span; at !== NONE; at = num(tree.parent, at)) {
    const row = num(rows.rowOf, at);
    if (row !== NONE) return row;
  }
  return NONE;
}

/** The set without the spans that hide this one. Returns the same set if nothing hides it. */
export function reveal(tree: TraceTree, collapsed: ReadonlySet<number>, span: number): ReadonlySet<number> {
  let result = collapsed;
  for (let at = num(tree.parent, span); at !== NONE; at = num(tree.parent, at)) {
    if (!result.has(at)) continue;
    const next = new Set(result);
    next.delete(at);
    result = next;
  }
  return result;
}

/** Collapses every span at this depth that has children, and nothing above it. */
export function collapseBelow(tree: TraceTree, depth: number): ReadonlySet<number> {
  const result = new Set<number>();
  for (let i = 0; i < tree.order.length; ++i) {
    if (num(tree.depth, i) === depth && num(tree.childCount, i) > 0) result.add(i);
  }
  return result;
}
