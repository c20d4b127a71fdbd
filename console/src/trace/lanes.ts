// The lanes of a flame graph: rows in which no two spans overlap, so that each lane can be searched by time.
//
// A span lies below its parent. Spans of one parent that ran at the same time lie below each other. Each span takes the
// highest lane below its parent's that is free from its start on; a tree of minima finds it, so that a hundred
// thousand spans at once do not take the square of that.

import { NONE, num, type TraceTree } from "./tree.ts";

export interface Lanes {
  readonly laneOf: Int32Array;
  /** The spans of each lane, by start; a span ends before the next one begins. */
  readonly lanes: readonly Int32Array[];
}

export function layoutLanes(tree: TraceTree): Lanes {
  const count = tree.order.length;
  const byStart = orderOfPlacing(tree);
  const laneOf = new Int32Array(count).fill(NONE);
  const size = new Int32Array(count + 1);
  const free = new FreeLanes(Math.max(1, count));
  let used = 0;
  for (let k = 0; k < count; ++k) {
    const span = num(byStart, k);
    const parent = num(tree.parent, span);
    const above = parent === NONE ? NONE : num(laneOf, parent);
    const lane = free.find(above + 1, num(tree.start, span));
    laneOf[span] = lane;
    // Spans without a duration still take a place of their own.
    free.take(lane, Math.max(num(tree.end, span), num(tree.start, span) + 1e-3));
    size[lane] = num(size, lane) + 1;
    if (lane >= used) used = lane + 1;
  }
  const lanes: Int32Array[] = [];
  for (let lane = 0; lane < used; ++lane) lanes.push(new Int32Array(num(size, lane)));
  const fill = new Int32Array(used);
  for (let k = 0; k < count; ++k) {
    const span = num(byStart, k);
    const lane = num(laneOf, span);
    (lanes[lane] as Int32Array)[num(fill, lane)] = span;
    fill[lane] = num(fill, lane) + 1;
  }
  return { laneOf, lanes };
}

/** By start, but a parent always before its children, even if they seem to have begun earlier. */
function orderOfPlacing(tree: TraceTree): Int32Array {
  const count = tree.order.length;
  const key = new Float64Array(count);
  for (let k = 0; k < count; ++k) {
    const span = num(tree.order, k);
    const parent = num(tree.parent, span);
    key[span] = parent === NONE ? num(tree.start, span) : Math.max(num(tree.start, span), num(key, parent));
  }
  const order = Int32Array.from(tree.order, (_, i) => i);
  let sorted = true;
  for (let i = 0; i < count && sorted; ++i) {
    const parent = num(tree.parent, i);
    sorted = (i === 0 || num(key, i - 1) <= num(key, i)) && parent < i;
  }
  if (!sorted) order.sort((a, b) => num(key, a) - num(key, b) || num(tree.place, a) - num(tree.place, b));
  return order;
}

/** The first element of a lane that ends after `time`, by binary search. */
export function firstEndingAfter(tree: TraceTree, lane: Int32Array, time: number): number {
  let low = 0;
  let high = lane.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (num(tree.end, num(lane, middle)) > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** For each lane the time from which it is free, in a binary tree of minima. */
class FreeLanes {
  private readonly leaves: number;
  private readonly minima: Float64Array;

  constructor(lanes: number) {
    let leaves = 1;
    // A lane below the parent's is asked for, so one more than there are spans.
    while (leaves < lanes + 1) leaves *= 2;
    this.leaves = leaves;
    this.minima = new Float64Array(2 * leaves).fill(Number.NEGATIVE_INFINITY);
  }

  /** The first lane from `from` on that is free at `time`. */
  find(from: number, time: number): number {
    let node = this.leaves + from;
    // Up, until a tree to the right holds a free lane; then down to its leftmost one.
    while (num(this.minima, node) > time) {
      while (node % 2 === 1) node >>= 1;
      ++node;
    }
    while (node < this.leaves) {
      node *= 2;
      if (num(this.minima, node) > time) ++node;
    }
    return node - this.leaves;
  }

  take(lane: number, until: number): void {
    let node = this.leaves + lane;
    this.minima[node] = until;
    for (node >>= 1; node > 0; node >>= 1) {
      this.minima[node] = Math.min(num(this.minima, 2 * node), num(this.minima, 2 * node + 1));
    }
  }
}
