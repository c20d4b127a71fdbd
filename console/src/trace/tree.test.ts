import { describe, expect, it } from "vitest";
import { makeLargeTrace, makeSpan } from "./sample.ts";
import { buildTree, NONE, num } from "./tree.ts";

const T0 = 1_790_000_000_000_000;

describe("the tree of a trace", () => {
  it("is empty for no spans", () => {
    const tree = buildTree([]);
    expect(tree.order).toHaveLength(0);
    expect(tree.duration).toBe(1);
    expect(tree.find("a")).toBe(NONE);
  });

  it("puts parents before children and children in the order of time", () => {
    const tree = buildTree([
      makeSpan("late", "root", T0 + 60, 10),
      makeSpan("early", "root", T0 + 10, 40),
      makeSpan("root", null, T0, 100),
      makeSpan("inner", "early", T0 + 20, 5),
    ]);
    expect([...tree.order].map((i) => tree.spans[i]?.span_id)).toEqual(["root", "early", "inner", "late"]);
    expect([...tree.depth]).toEqual([1, 1, 0, 2]);
    expect(tree.maxDepth).toBe(2);
    expect(num(tree.subtreeEnd, tree.find("root"))).toBe(4);
    expect(num(tree.subtreeEnd, tree.find("early"))).toBe(3);
    expect(num(tree.childCount, tree.find("root"))).toBe(2);
  });

  it("makes a root of a span whose parent is missing, and says so", () => {
    const tree = buildTree([makeSpan("a", "gone", T0 + 5, 5), makeSpan("root", null, T0, 10)]);
    expect(num(tree.parent, 0)).toBe(NONE);
    expect(tree.orphan[0]).toBe(1);
    expect(tree.orphan[1]).toBe(0);
    expect(tree.order).toHaveLength(2);
  });

  it("keeps every span of a circle of parents, of a span that is its own parent, and of an id that occurs twice", () => {
    const tree = buildTree([
      makeSpan("a", "c", T0, 9),
      makeSpan("b", "a", T0 + 1, 8),
      makeSpan("c", "b", T0 + 2, 7),
      makeSpan("self", "self", T0, 1),
      makeSpan("a", null, T0, 2),
    ]);
    expect([...tree.order].sort()).toEqual([0, 1, 2, 3, 4]);
    expect([...tree.parent].filter((p) => p === NONE)).toHaveLength(3);
  });

  it("counts as a span's own the time in which no child ran, however the children overlap", () => {
    const tree = buildTree([
      makeSpan("root", null, T0, 100),
      makeSpan("x", "root", T0 + 10, 30),
      makeSpan("y", "root", T0 + 20, 40),
      makeSpan("z", "root", T0 + 90, 50),
    ]);
    expect(num(tree.self, 0)).toBe(100 - 50 - 10);
    expect(num(tree.self, 1)).toBe(30);
  });

  it("moves another machine's spans that begin before their parent, with what is below them", () => {
    const tree = buildTree([
      makeSpan("root", null, T0 + 10_000, 10_000),
      makeSpan("remote", "root", T0 + 2_000, 6_000, { worker: "w" }),
      makeSpan("below", "remote", T0 + 3_000, 1_000, { worker: "w" }),
      makeSpan("local", "root", T0 + 9_990, 10),
    ]);
    const root = tree.find("root");
    const remote = tree.find("remote");
    expect(num(tree.start, remote)).toBe(num(tree.start, root) + 2_000);
    expect(num(tree.shift, remote)).toBe(10_000);
    expect(num(tree.shift, tree.find("below"))).toBe(10_000);
    expect(num(tree.shift, tree.find("local"))).toBe(0);
  });

  it("leaves a child alone that outlives its parent", () => {
    const tree = buildTree([makeSpan("root", null, T0, 10), makeSpan("async", "root", T0 + 500, 90, { worker: "w" })]);
    expect(num(tree.shift, 1)).toBe(0);
    expect(tree.duration).toBe(590);
  });

  it("holds 100,000 spans once each", { timeout: 60_000 }, () => {
    const tree = buildTree(makeLargeTrace(100_000));
    const seen = new Uint8Array(100_000);
    for (const i of tree.order) seen[i] = 1;
    expect(seen.every((one) => one === 1)).toBe(true);
    let outside = 0;
    for (let k = 1; k < tree.order.length; ++k) {
      const parent = num(tree.parent, num(tree.order, k));
      if (parent !== NONE && !(num(tree.place, parent) < k && k < num(tree.subtreeEnd, parent))) ++outside;
    }
    expect(outside).toBe(0);
  });

  it("takes a chain of 20,000 spans", () => {
    const spans = Array.from({ length: 20_000 }, (_, i) =>
      makeSpan(`s${i}`, i ? `s${i - 1}` : null, T0 + i, 40_000 - 2 * i),
    );
    expect(buildTree(spans).maxDepth).toBe(19_999);
  });
});
