// What the keys of a timeline do, apart from where it is drawn.

import type { CriticalPath } from "./critical.ts";
import { nextCritical } from "./critical.ts";
import { nearestRow, type Rows } from "./rows.ts";
import { type Matches, nextMatch } from "./search.ts";
import { NONE, num, type TraceTree } from "./tree.ts";
import { fitSpan, isWhole, panViewport, type Viewport, zoomViewport } from "./viewport.ts";

export interface KeyState {
  readonly tree: TraceTree;
  readonly rows: Rows;
  readonly collapsed: ReadonlySet<number>;
  readonly view: Viewport;
  readonly selected: number;
  readonly critical: CriticalPath;
  readonly matches: Matches | null;
  /** How many rows a page has. */
  readonly page: number;
}

export type KeyAction =
  | { readonly select: number }
  | { readonly view: Viewport }
  | { readonly collapsed: ReadonlySet<number> }
  | { readonly clear: true };

export const KEY_HELP: readonly (readonly [string, string])[] = [
  ["↑ ↓", "Previous and next span"],
  ["← →", "Fold and unfold, or to the parent and the first child"],
  ["+ −", "Zoom in and out, at the selected span"],
  ["Shift ← →", "Move in time"],
  ["f", "Fit the selected span; again: the whole trace"],
  ["[ ]", "Previous and next span of the critical path"],
  ["n N", "Next and previous match of the search"],
  ["Esc", "Select nothing"],
];

const withoutChange = null;

/** What a key does, or null if it does nothing here. */
export function keyAction(key: string, shift: boolean, state: KeyState): KeyAction | null {
  const { tree, view, selected } = state;
  switch (key) {
    case "ArrowDown":
    case "j":
      return move(state, 1);
    case "ArrowUp":
    case "k":
      return move(state, -1);
    case "PageDown":
      return move(state, state.page);
    case "PageUp":
      return move(state, -state.page);
    case "Home":
      return selectRow(state, 0);
    case "End":
      return selectRow(state, state.rows.spans.length - 1);
    case "ArrowLeft":
      return shift ? { view: panViewport(view, (view.from - view.to) / 5, tree.duration) } : fold(state);
    case "ArrowRight":
      return shift ? { view: panViewport(view, (view.to - view.from) / 5, tree.duration) } : unfold(state);
    case "+":
    case "=":
      return { view: zoomViewport(view, 0.6, focusOf(state), tree.duration) };
    case "-":
    case "_":
      return { view: zoomViewport(view, 1 / 0.6, focusOf(state), tree.duration) };
    case "f":
      return { view: fitSelected(state) };
    case "0":
      return { view: { from: 0, to: tree.duration } };
    case "[":
    case "]": {
      const next = nextCritical(tree, state.critical, selected, key === "]" ? 1 : -1);
      return next === NONE ? withoutChange : { select: next };
    }
    case "n":
    case "N": {
      const next = state.matches ? nextMatch(tree, state.matches, selected, key === "n" ? 1 : -1) : NONE;
      return next === NONE ? withoutChange : { select: next };
    }
    case "Escape":
      return selected === NONE ? withoutChange : { clear: true };
    default:
      return withoutChange;
  }
}

/** Fits the selected span; the whole trace if nothing is selected or the span fills the window already. */
export function fitSelected(state: Pick<KeyState, "tree" | "view" | "selected">): Viewport {
  const { tree, view, selected } = state;
  const whole = { from: 0, to: tree.duration };
  if (selected === NONE) return whole;
  const fitted = fitSpan(num(tree.start, selected), num(tree.end, selected), tree.duration);
  const same = Math.abs(fitted.from - view.from) + Math.abs(fitted.to - view.to) < (view.to - view.from) * 0.01;
  return same && !isWhole(view, tree.duration) ? whole : fitted;
}

function focusOf({ tree, view, selected }: KeyState): number {
  if (selected !== NONE) {
    const middle = (num(tree.start, selected) + num(tree.end, selected)) / 2;
    if (middle >= view.from && middle <= view.to) return middle;
  }
  return (view.from + view.to) / 2;
}

function selectRow(state: KeyState, row: number): KeyAction | null {
  const last = state.rows.spans.length - 1;
  if (last < 0) return withoutChange;
  return { select: num(state.rows.spans, Math.min(last, Math.max(0, row))) };
}

function move(state: KeyState, by: number): KeyAction | null {
  if (state.selected === NONE) return selectRow(state, by > 0 ? 0 : state.rows.spans.length - 1);
  return selectRow(state, nearestRow(state.tree, state.rows, state.selected) + by);
}

function fold(state: KeyState): KeyAction | null {
  const { tree, selected, collapsed } = state;
  if (selected === NONE) return withoutChange;
  if (num(tree.childCount, selected) > 0 && !collapsed.has(selected)) {
    return { collapsed: new Set(collapsed).add(selected) };
  }
  const parent = num(tree.parent, selected);
  return parent === NONE ? withoutChange : { select: parent };
}

function unfold(state: KeyState): KeyAction | null {
  const { tree, selected, collapsed } = state;
  if (selected === NONE || num(tree.childCount, selected) === 0) return withoutChange;
  if (!collapsed.has(selected)) return { select: num(tree.order, num(tree.place, selected) + 1) };
  const next = new Set(collapsed);
  next.delete(selected);
  return { collapsed: next };
}
