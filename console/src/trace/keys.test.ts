import { describe, expect, it } from "vitest";
import { readCriticalPath } from "./critical.ts";
import { type KeyState, keyAction } from "./keys.ts";
import { layoutRows } from "./rows.ts";
import { makeSpan } from "./sample.ts";
import { searchSpans } from "./search.ts";
import { buildTree, NONE } from "./tree.ts";

const T0 = 1_790_000_000_000_000;
const tree = buildTree([
  makeSpan("root", null, T0, 1000),
  makeSpan("a", "root", T0, 400),
  makeSpan("a1", "a", T0 + 100, 100, { name: "redis.SET" }),
  makeSpan("b", "root", T0 + 500, 400, { name: "redis.GET" }),
]);

function state(more: Partial<KeyState> = {}): KeyState {
  const collapsed = more.collapsed ?? new Set<number>();
  return {
    tree,
    collapsed,
    rows: layoutRows(tree, collapsed),
    view: { from: 0, to: 1000 },
    selected: NONE,
    critical: readCriticalPath(tree, [
      { span_id: "a1", start: T0 + 100, duration: 100 },
      { span_id: "b", start: T0 + 500, duration: 400 },
    ]),
    matches: null,
    page: 2,
    ...more,
  };
}
const press = (key: string, more: Partial<KeyState> = {}, shift = false) => keyAction(key, shift, state(more));

describe("the keys of a timeline", () => {
  it("go from row to row and stop at the ends", () => {
    expect(press("ArrowDown")).toEqual({ select: 0 });
    expect(press("ArrowUp")).toEqual({ select: 3 });
    expect(press("ArrowDown", { selected: 0 })).toEqual({ select: 1 });
    expect(press("ArrowDown", { selected: 3 })).toEqual({ select: 3 });
    expect(press("PageDown", { selected: 0 })).toEqual({ select: 2 });
    expect(press("Home", { selected: 2 })).toEqual({ select: 0 });
    expect(press("End")).toEqual({ select: 3 });
    expect(press("ArrowDown", { selected: 1, collapsed: new Set([1]) })).toEqual({ select: 3 });
  });

  it("fold and unfold, then go up and down the tree", () => {
    expect(press("ArrowLeft", { selected: 1 })).toEqual({ collapsed: new Set([1]) });
    expect(press("ArrowLeft", { selected: 1, collapsed: new Set([1]) })).toEqual({ select: 0 });
    expect(press("ArrowLeft", { selected: 2 })).toEqual({ select: 1 });
    expect(press("ArrowRight", { selected: 1, collapsed: new Set([1]) })).toEqual({ collapsed: new Set() });
    expect(press("ArrowRight", { selected: 1 })).toEqual({ select: 2 });
    expect(press("ArrowRight", { selected: 2 })).toBeNull();
  });

  it("zoom at the selected span, move and fit", () => {
    const zoomed = press("+", { selected: 2 });
    if (!zoomed || !("view" in zoomed)) throw new Error("no view");
    expect(zoomed.view.to - zoomed.view.from).toBeCloseTo(600);
    expect(zoomed.view.from).toBeLessThan(150);
    expect(press("ArrowRight", { view: { from: 0, to: 100 } }, true)).toEqual({ view: { from: 20, to: 120 } });
    const fitted = press("f", { selected: 3 });
    expect(fitted).toEqual({ view: { from: 480, to: 920 } });
    expect(press("f", { selected: 3, view: { from: 480, to: 920 } })).toEqual({ view: { from: 0, to: 1000 } });
    expect(press("0", { view: { from: 1, to: 2 } })).toEqual({ view: { from: 0, to: 1000 } });
  });

  it("go along the critical path and the matches", () => {
    expect(press("]")).toEqual({ select: 2 });
    expect(press("]", { selected: 2 })).toEqual({ select: 3 });
    expect(press("[", { selected: 3 })).toEqual({ select: 2 });
    const matches = searchSpans(tree, "redis");
    expect(press("n", { matches, selected: 2 })).toEqual({ select: 3 });
    expect(press("N", { matches, selected: 2 })).toEqual({ select: 3 });
    expect(press("n")).toBeNull();
  });

  it("leave other keys to the page", () => {
    expect(press("x")).toBeNull();
    expect(press("Escape")).toBeNull();
    expect(press("Escape", { selected: 1 })).toEqual({ clear: true });
  });
});
