// Two traces side by side: what each path of names took in the one and in the other.

import { plainName } from "./palette.ts";
import { at, NONE, num, type TraceTree } from "./tree.ts";

export interface Total {
  readonly count: number;
  readonly total: number;
  readonly self: number;
  /** The longest span, to open. NONE if there is none. */
  readonly longest: number;
}

export interface ComparedRow {
  readonly name: string;
  readonly path: string;
  readonly depth: number;
  readonly a: Total;
  readonly b: Total;
  /** b - a, in microseconds. */
  readonly totalDifference: number;
  readonly selfDifference: number;
  readonly hasChildren: boolean;
}

interface Node {
  name: string;
  path: string;
  children: Map<string, Node>;
  totals: [Mutable, Mutable];
  /** The first start in a trace: rows keep the order of time. */
  first: number;
}
interface Mutable {
  count: number;
  total: number;
  self: number;
  longest: number;
}

/** The rows in the order of a walk, children in the order in which they first began. */
export function compareTraces(a: TraceTree, b: TraceTree): ComparedRow[] {
  const root = makeNode("", "");
  const shared = sharedRoot(a, b);
  gather(root, a, 0, shared);
  gather(root, b, 1, shared);
  const rows: ComparedRow[] = [];
  const visit = (node: Node, depth: number) => {
    const children = [...node.children.values()].sort((x, y) => x.first - y.first || (x.name < y.name ? -1 : 1));
    for (const child of children) {
      const [left, right] = child.totals;
      rows.push({
        name: child.name,
        path: child.path,
        depth,
        a: left,
        b: right,
        totalDifference: right.total - left.total,
        selfDifference: right.self - left.self,
        hasChildren: child.children.size > 0,
      });
      visit(child, depth + 1);
    }
  };
  visit(root, 0);
  return rows;
}

/** The row whose own time differs most: where to look first. Returns null if nothing differs. */
export function largestDifference(rows: readonly ComparedRow[]): ComparedRow | null {
  let best: ComparedRow | null = null;
  for (const row of rows) {
    if (row.selfDifference !== 0 && (!best || Math.abs(row.selfDifference) > Math.abs(best.selfDifference))) best = row;
  }
  return best;
}

function makeNode(name: string, path: string): Node {
  const zero = (): Mutable => ({ count: 0, total: 0, self: 0, longest: NONE });
  return { name, path, children: new Map(), totals: [zero(), zero()], first: Number.POSITIVE_INFINITY };
}

/** Two requests of different kinds have one root each, which are compared although their names differ. */
function sharedRoot(a: TraceTree, b: TraceTree): string | null {
  const only = (tree: TraceTree) => {
    const first = tree.order[0];
    return first !== undefined && num(tree.subtreeEnd, first) === tree.order.length
      ? plainName(at(tree.spans, first).name)
      : null;
  };
  const [left, right] = [only(a), only(b)];
  if (left === null || right === null) return null;
  return left === right ? left : `${left} | ${right}`;
}

function gather(root: Node, tree: TraceTree, side: 0 | 1, shared: string | null): void {
  const nodeOf: Node[] = new Array(tree.spans.length);
  for (let k = 0; k < tree.order.length; ++k) {
    const i = num(tree.order, k);
    const parent = num(tree.parent, i);
    const above = parent === NONE ? root : (nodeOf[parent] as Node);
    const name = parent === NONE && shared !== null ? shared : plainName(at(tree.spans, i).name);
    let node = above.children.get(name);
    if (!node) {
      node = makeNode(name, `${above.path}/${name}`);
      above.children.set(name, node);
    }
    nodeOf[i] = node;
    node.first = Math.min(node.first, num(tree.start, i));
    const total = node.totals[side];
    const duration = num(tree.end, i) - num(tree.start, i);
    if (total.longest === NONE || duration > num(tree.end, total.longest) - num(tree.start, total.longest)) {
      total.longest = i;
    }
    ++total.count;
    total.total += duration;
    total.self += num(tree.self, i);
  }
}
