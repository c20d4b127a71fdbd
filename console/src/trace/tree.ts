// The tree of a trace's spans, in arrays that are indexed by the number of a span in the input.
//
// The input is not trusted: parents may be missing, point at each other or at themselves, and ids may occur twice. Every
// span is in the tree exactly once. A span whose parent is missing, or that a circle of parents holds, is a root.
//
// The clocks of two machines differ. A span of another process that seems to begin before its parent, although the
// parent caused it, is moved with everything below it in that process; `shift` says by how much.

import type { TraceSpan } from "./model.ts";

export const NONE = -1;

export interface TraceTree {
  readonly spans: readonly TraceSpan[];
  /** When the trace begins, in microseconds since the epoch. The times below are relative to it. */
  readonly origin: number;
  /** From the origin to the end of the last span. At least 1. */
  readonly duration: number;
  readonly start: Float64Array;
  readonly end: Float64Array;
  /** The part of a span in which none of its children ran. */
  readonly self: Float64Array;
  readonly shift: Float64Array;
  readonly parent: Int32Array;
  readonly depth: Int32Array;
  /** The spans in the order of a walk: a parent before its children, which are sorted by start. */
  readonly order: Int32Array;
  /** The place of a span in `order`. */
  readonly place: Int32Array;
  /** The place after the last span below this one. `subtreeEnd - place` is the size of the subtree. */
  readonly subtreeEnd: Int32Array;
  readonly childCount: Int32Array;
  /** Its parent is named but is not among the spans. */
  readonly orphan: Uint8Array;
  readonly maxDepth: number;
  /** The number of the span with this id, or NONE. */
  find(spanId: string): number;
}

/** Below this, a span that begins before its parent is taken for rounding, not for another clock. */
const SKEW_TOLERANCE_US = 50;

export function buildTree(spans: readonly TraceSpan[]): TraceTree {
  const count = spans.length;
  const index = new Map<string, number>();
  let origin = Number.POSITIVE_INFINITY;
  for (let i = 0; i < count; ++i) {
    const span = at(spans, i);
    if (!index.has(span.span_id)) index.set(span.span_id, i);
    if (span.start < origin) origin = span.start;
  }
  if (count === 0) origin = 0;

  const start = new Float64Array(count);
  const end = new Float64Array(count);
  for (let i = 0; i < count; ++i) {
    const span = at(spans, i);
    start[i] = span.start - origin;
    end[i] = span.start - origin + Math.max(0, span.duration);
  }
  const { parent, orphan } = findParents(spans, index);
  breakCircles(parent);
  const walk = walkTree(parent, start);
  const shift = correctClocks(spans, parent, walk.order, start, end);

  // The correction moves spans later only, and never before the origin.
  let duration = 1;
  for (let i = 0; i < count; ++i) duration = Math.max(duration, num(end, i));
  return {
    spans,
    origin,
    duration,
    start,
    end,
    self: selfTimes(parent, walk, start, end),
    shift,
    parent,
    orphan,
    ...walk,
    find: (spanId) => index.get(spanId) ?? NONE,
  };
}

/** The element of an array at an index that is known to be inside it. */
export function at<T>(values: readonly T[], i: number): T {
  return values[i] as T;
}
export function num(values: Float64Array | Int32Array | Uint8Array | Uint32Array, i: number): number {
  return values[i] as number;
}

function findParents(spans: readonly TraceSpan[], index: Map<string, number>) {
  const parent = new Int32Array(spans.length).fill(NONE);
  const orphan = new Uint8Array(spans.length);
  for (let i = 0; i < spans.length; ++i) {
    const id = at(spans, i).parent_id;
    if (!id) continue;
    const found = index.get(id);
    if (found === undefined) orphan[i] = 1;
    else if (found !== i) parent[i] = found;
  }
  return { parent, orphan };
}

/** Makes a root of one span of each circle of parents. */
function breakCircles(parent: Int32Array): void {
  const seen = new Int32Array(parent.length); // 0: not yet; else the number of the walk that met it
  for (let i = 0; i < parent.length; ++i) {
    let at = i;
    while (at !== NONE && seen[at] === 0) {
      seen[at] = i + 1;
      const next = num(parent, at);
      if (next !== NONE && seen[next] === i + 1) parent[at] = NONE;
      at = num(parent, at);
    }
  }
}

interface Walk {
  order: Int32Array;
  place: Int32Array;
  subtreeEnd: Int32Array;
  depth: Int32Array;
  childCount: Int32Array;
  maxDepth: number;
}

function walkTree(parent: Int32Array, start: Float64Array): Walk {
  const count = parent.length;
  // All spans by start; then the children of each parent are a slice of one array, sorted already.
  const byStart = new Int32Array(count);
  for (let i = 0; i < count; ++i) byStart[i] = i;
  // The server sends them in this order; sorting 100,000 takes longer than everything else here.
  if (!isSorted(start)) byStart.sort((a, b) => num(start, a) - num(start, b) || a - b);

  const childCount = new Int32Array(count);
  let roots = 0;
  for (let i = 0; i < count; ++i) {
    const p = num(parent, i);
    if (p === NONE) ++roots;
    else childCount[p] = num(childCount, p) + 1;
  }
  const first = new Int32Array(count + 1);
  for (let i = 0; i < count; ++i) first[i + 1] = num(first, i) + num(childCount, i);
  const fill = first.slice();
  const children = new Int32Array(count);
  const rootList = new Int32Array(roots);
  let root = 0;
  for (let k = 0; k < count; ++k) {
    const i = num(byStart, k);
    const p = num(parent, i);
    if (p === NONE) {
      rootList[root++] = i;
    } else {
      children[num(fill, p)] = i;
      fill[p] = num(fill, p) + 1;
    }
  }

  const order = new Int32Array(count);
  const place = new Int32Array(count);
  const depth = new Int32Array(count);
  const stack = new Int32Array(count);
  let top = 0;
  let maxDepth = 0;
  for (let r = roots - 1; r >= 0; --r) stack[top++] = num(rootList, r);
  for (let next = 0; top > 0; ++next) {
    const i = num(stack, --top);
    order[next] = i;
    place[i] = next;
    const p = num(parent, i);
    const own = p === NONE ? 0 : num(depth, p) + 1;
    depth[i] = own;
    if (own > maxDepth) maxDepth = own;
    for (let c = num(first, i + 1) - 1; c >= num(first, i); --c) stack[top++] = num(children, c);
  }
  const subtreeEnd = new Int32Array(count);
  for (let k = count - 1; k >= 0; --k) {
    const i = num(order, k);
    if (subtreeEnd[i] === 0) subtreeEnd[i] = k + 1;
    const p = num(parent, i);
    if (p !== NONE) subtreeEnd[p] = Math.max(num(subtreeEnd, p), num(subtreeEnd, i));
  }
  return { order, place, subtreeEnd, depth, childCount, maxDepth };
}

function isSorted(values: Float64Array): boolean {
  for (let i = 1; i < values.length; ++i) {
    if (num(values, i) < num(values, i - 1)) return false;
  }
  return true;
}

/** Two spans of one process have one clock. */
function sameProcess(a: TraceSpan, b: TraceSpan): boolean {
  return a.service === b.service && a.worker === b.worker;
}

function correctClocks(
  spans: readonly TraceSpan[],
  parent: Int32Array,
  order: Int32Array,
  start: Float64Array,
  end: Float64Array,
): Float64Array {
  const shift = new Float64Array(spans.length);
  for (let k = 0; k < order.length; ++k) {
    const i = num(order, k);
    const p = num(parent, i);
    if (p === NONE) continue;
    if (sameProcess(at(spans, i), at(spans, p))) {
      shift[i] = num(shift, p);
    } else {
      const early = num(start, p) - num(start, i);
      if (early > SKEW_TOLERANCE_US) {
        // Unknown is how long the message was under way; half of the time in which the child can have lain is fair.
        const room = num(end, p) - num(start, p) - (num(end, i) - num(start, i));
        shift[i] = early + Math.max(0, room) / 2;
      }
    }
    if (shift[i] !== 0) {
      start[i] = num(start, i) + num(shift, i);
      end[i] = num(end, i) + num(shift, i);
    }
  }
  return shift;
}

function selfTimes(parent: Int32Array, walk: Walk, start: Float64Array, end: Float64Array): Float64Array {
  const count = parent.length;
  const self = new Float64Array(count);
  // Children come in the order of their start, so their union grows at its right end only.
  const covered = new Float64Array(count);
  const right = new Float64Array(count);
  for (let i = 0; i < count; ++i) right[i] = num(start, i);
  for (let k = 0; k < count; ++k) {
    const i = num(walk.order, k);
    const p = num(parent, i);
    if (p === NONE) continue;
    const from = Math.max(num(start, i), num(right, p));
    const to = Math.min(num(end, i), num(end, p));
    if (to > from) {
      covered[p] = num(covered, p) + to - from;
      right[p] = to;
    }
  }
  for (let i = 0; i < count; ++i) self[i] = Math.max(0, num(end, i) - num(start, i) - num(covered, i));
  return self;
}
