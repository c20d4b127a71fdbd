// What the pictures of a trace show.

import type { CriticalPath } from "../critical.ts";
import type { TraceLog } from "../marks.ts";
import type { Matches } from "../search.ts";
import type { TraceTree } from "../tree.ts";
import type { Viewport } from "../viewport.ts";
import type { Ink } from "./ink.ts";

/** The height of the time axis above the rows. */
export const AXIS_HEIGHT = 26;

export interface Scene {
  readonly tree: TraceTree;
  readonly view: Viewport;
  readonly ink: Ink;
  /** The colour of each span. */
  readonly colours: readonly string[];
  /** A span, or NONE. */
  readonly selected: number;
  readonly hovered: number;
  readonly matches: Matches | null;
  readonly critical: CriticalPath;
  /** Spans off the critical path are pale. */
  readonly onlyCritical: boolean;
  readonly logs: readonly TraceLog[];
  readonly logsOf: ReadonlyMap<number, readonly number[]>;
  /** The size of the canvas in CSS pixels, and how far it is scrolled. */
  readonly width: number;
  readonly height: number;
  readonly scrollTop: number;
}

/** Whether a span is drawn pale because something else is looked for. */
export function isPale(scene: Scene, span: number): boolean {
  if (scene.matches !== null && scene.matches.matched[span] !== 1) return true;
  return scene.onlyCritical && scene.critical.onPath[span] !== 1;
}
