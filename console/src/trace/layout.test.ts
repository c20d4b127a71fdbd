import { describe, expect, it } from "vitest";
import { firstEndingAfter, layoutLanes } from "./lanes.ts";
import { drawMinimap } from "./minimap.ts";
import { collapseBelow, layoutRows, nearestRow, reveal } from "./rows.ts";
import { makeLargeTrace, makeRandom, makeSpan } from "./sample.ts";
import { buildTree, NONE, num, type TraceTree } from "./tree.ts";

const T0 = 1_790_000_000_000_000;

function small(): TraceTree {
  return buildTree([
    makeSpan("root", null, T0, 100),
    makeSpan("a", "root", T0, 50),
    makeSpan("a1", "a", T0 + 10, 10),
    makeSpan("b", "root", T0 + 20, 60),
    makeSpan("b1", "b", T0 + 30, 10, { failed: true }),
  ]);
}

describe("the rows of a waterfall", () => {
  it("leave out what is below a collapsed span", () => {
    const tree = small();
    const rows = layoutRows(tree, new Set([tree.find("a")]));
    expect([...rows.spans].map((i) => tree.spans[i]?.span_id)).toEqual(["root", "a", "b", "b1"]);
    expect(num(rows.rowOf, tree.find("a1"))).toBe(NONE);
    expect(nearestRow(tree, rows, tree.find("a1"))).toBe(1);
    expect(layoutRows(tree, new Set([0])).spans).toHaveLength(1);
  });

  it("show a hidden span after reveal, and keep the set if it is not hidden", () => {
    const tree = small();
    const hidden = new Set([tree.find("root"), tree.find("a"), tree.find("b")]);
    const shown = reveal(tree, hidden, tree.find("a1"));
    expect([...shown]).toEqual([tree.find("b")]);
    expect(reveal(tree, shown, tree.find("a1"))).toBe(shown);
  });

  it("are collapsed at a depth", () => {
    const tree = small();
    expect([...collapseBelow(tree, 1)].sort()).toEqual([tree.find("a"), tree.find("b")]);
  });
});

describe("the lanes of a flame graph", () => {
  function check(tree: TraceTree): void {
    const { lanes, laneOf } = layoutLanes(tree);
    let total = 0;
    for (const lane of lanes) {
      total += lane.length;
      for (let k = 1; k < lane.length; ++k) {
        expect(num(tree.end, num(lane, k - 1))).toBeLessThanOrEqual(num(tree.start, num(lane, k)));
      }
    }
    expect(total).toBe(tree.spans.length);
    for (let i = 0; i < tree.spans.length; ++i) {
      const parent = num(tree.parent, i);
      if (parent !== NONE) expect(num(laneOf, i)).toBeGreaterThan(num(laneOf, parent));
    }
  }

  it("put concurrent spans below each other and reuse a free lane", () => {
    const tree = small();
    const { laneOf } = layoutLanes(tree);
    expect([...laneOf]).toEqual([0, 1, 2, 2, 3]);
    const later = buildTree([
      makeSpan("root", null, T0, 100),
      makeSpan("x", "root", T0, 10),
      makeSpan("y", "root", T0 + 10, 10),
    ]);
    expect([...layoutLanes(later).laneOf]).toEqual([0, 1, 1]);
  });

  it("never overlap, and have children below parents", () => {
    check(small());
    check(buildTree(makeLargeTrace(3_000)));
    const random = makeRandom(7);
    const spans = Array.from({ length: 500 }, (_, i) =>
      makeSpan(`${i}`, i ? `${Math.floor(random() * i)}` : null, T0 + random() * 1000, random() * 300),
    );
    check(buildTree(spans));
  });

  // The square of this would take hours, far beyond the limit of the test, which a loaded machine keeps.
  it("do not take the square of 100,000 spans that run at once", { timeout: 60_000 }, () => {
    const spans = Array.from({ length: 100_000 }, (_, i) => makeSpan(`${i}`, i ? "0" : null, T0 + i, 1e6));
    expect(layoutLanes(buildTree(spans)).lanes).toHaveLength(100_000);
  });

  it("are searched by time", () => {
    const tree = buildTree(Array.from({ length: 100 }, (_, i) => makeSpan(`${i}`, null, T0 + 10 * i, 5)));
    const lane = layoutLanes(tree).lanes[0] as Int32Array;
    expect(lane).toHaveLength(100);
    expect(firstEndingAfter(tree, lane, -1)).toBe(0);
    expect(firstEndingAfter(tree, lane, 52)).toBe(5);
    expect(firstEndingAfter(tree, lane, 55)).toBe(6);
    expect(firstEndingAfter(tree, lane, 1e9)).toBe(100);
  });
});

describe("the minimap", () => {
  it("shows where spans run and where they fail", () => {
    const tree = small();
    const map = drawMinimap(tree, layoutRows(tree, new Set()), 100, 5);
    expect(map.density[0]).toBeGreaterThan(0);
    expect(map.density[100 + 60]).toBe(0); // "a" ends at 50
    expect(map.density[100 + 40]).toBe(1);
    expect([...map.failed.subarray(400, 500)].indexOf(1)).toBe(30);
    expect(map.failed[30]).toBe(0);
  });

  it("draws a short span at the very end", () => {
    const tree = buildTree([makeSpan("root", null, T0, 1000), makeSpan("last", "root", T0 + 1000, 0)]);
    const map = drawMinimap(tree, layoutRows(tree, new Set()), 10, 2);
    expect(map.density[19]).toBe(1);
  });
});
