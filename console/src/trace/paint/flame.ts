// The flame graph: spans as boxes in lanes, a span below its parent.
//
// A lane is searched for its first span in sight; spans narrower than a pixel are drawn one a pixel, and the search
// jumps over the rest. So a frame costs at most the pixels of the canvas, whatever the number of spans.

import { formatDuration } from "../../lib/units.ts";
import { firstEndingAfter, type Lanes } from "../lanes.ts";
import { inkOn } from "../palette.ts";
import { at, NONE, num } from "../tree.ts";
import { type AxisPlace, paintAxis, paintGrid } from "./axis.ts";
import { AXIS_HEIGHT, isPale, type Scene } from "./scene.ts";
import { clipText, textWidth } from "./text.ts";

export const LANE_HEIGHT = 21;
const BOX_HEIGHT = LANE_HEIGHT - 2;
/** Narrower boxes have no text. */
const TEXT_MIN = 22;

export interface FlameScene extends Scene {
  readonly lanes: Lanes;
}

export function hitFlame(scene: FlameScene, x: number, y: number): number {
  if (y < AXIS_HEIGHT) return NONE;
  const lane = scene.lanes.lanes[Math.floor((y - AXIS_HEIGHT + scene.scrollTop) / LANE_HEIGHT)];
  if (!lane) return NONE;
  const perPixel = (scene.view.to - scene.view.from) / scene.width;
  const time = scene.view.from + x * perPixel;
  const k = firstEndingAfter(scene.tree, lane, time - perPixel);
  if (k >= lane.length) return NONE;
  const span = num(lane, k);
  return num(scene.tree.start, span) <= time + perPixel ? span : NONE;
}

export function paintFlame(ctx: CanvasRenderingContext2D, scene: FlameScene): void {
  const { ink, lanes, width, height, scrollTop } = scene;
  const place: AxisPlace = { left: 0, width, height };
  ctx.clearRect(0, 0, width, height);
  paintGrid(ctx, scene.view, place, ink);
  ctx.textBaseline = "middle";
  ctx.font = ink.fontSmall;
  const first = Math.max(0, Math.floor(scrollTop / LANE_HEIGHT));
  const last = Math.min(lanes.lanes.length, Math.ceil((scrollTop + height - AXIS_HEIGHT) / LANE_HEIGHT));
  for (let lane = first; lane < last; ++lane) {
    paintLane(ctx, scene, lanes.lanes[lane] as Int32Array, AXIS_HEIGHT + lane * LANE_HEIGHT - scrollTop);
  }
  outlineSelected(ctx, scene);
  paintAxis(ctx, scene.view, place, ink);
}

function paintLane(ctx: CanvasRenderingContext2D, scene: FlameScene, lane: Int32Array, y: number): void {
  const { tree, view } = scene;
  const scale = scene.width / (view.to - view.from);
  // A run of narrow boxes of one colour is one rectangle.
  let runFrom = 0;
  let runTo = -1;
  let runColour = "";
  let runPale = false;
  const flush = () => {
    if (runTo <= runFrom) return;
    ctx.globalAlpha = runPale ? 0.25 : 1;
    ctx.fillStyle = runColour;
    ctx.fillRect(runFrom, y, runTo - runFrom, BOX_HEIGHT);
    runTo = -1;
  };
  for (let k = firstEndingAfter(tree, lane, view.from); k < lane.length; ) {
    const span = num(lane, k);
    const x0 = (num(tree.start, span) - view.from) * scale;
    if (x0 > scene.width) break;
    const x1 = (num(tree.end, span) - view.from) * scale;
    if (x1 - x0 >= 1.5) {
      flush();
      paintBox(ctx, scene, span, Math.max(-10, x0), Math.min(scene.width + 10, x1), y);
      ++k;
      continue;
    }
    const pixel = Math.floor(x0);
    const colour = at(scene.colours, span);
    const pale = isPale(scene, span);
    if (runTo === pixel && runColour === colour && runPale === pale) {
      runTo = pixel + 1;
    } else {
      flush();
      runFrom = pixel;
      runTo = pixel + 1;
      runColour = colour;
      runPale = pale;
    }
    // The next span that reaches beyond this pixel.
    k = Math.max(k + 1, firstEndingAfter(tree, lane, view.from + (pixel + 1) / scale));
  }
  flush();
  ctx.globalAlpha = 1;
}

function paintBox(ctx: CanvasRenderingContext2D, scene: FlameScene, span: number, x0: number, x1: number, y: number) {
  const colour = at(scene.colours, span);
  const record = at(scene.tree.spans, span);
  // A gap of a pixel keeps neighbours apart, as long as something remains.
  const width = x1 - x0 > 4 ? x1 - x0 - 1 : x1 - x0;
  ctx.globalAlpha = isPale(scene, span) ? 0.25 : 1;
  ctx.fillStyle = colour;
  ctx.fillRect(x0, y, width, BOX_HEIGHT);
  if (record.failed) {
    ctx.fillStyle = scene.ink.bad;
    ctx.fillRect(x0, y, width, 3);
  }
  if (scene.critical.onPath[span] === 1) paintCritical(ctx, scene, span, y);
  if (width < TEXT_MIN) return;
  const left = Math.max(0, x0) + 5;
  const room = Math.min(scene.width, x0 + width) - left - 4;
  ctx.fillStyle = inkOn(colour);
  const name = clipText(ctx, record.failed ? `✕ ${record.name}` : record.name, room);
  ctx.fillText(name, left, y + BOX_HEIGHT / 2 + 0.5);
  const duration = formatDuration(num(scene.tree.end, span) - num(scene.tree.start, span));
  const used = textWidth(ctx, name) + 14;
  if (room - used >= textWidth(ctx, duration)) {
    ctx.globalAlpha *= 0.75;
    ctx.fillText(duration, left + used - 6, y + BOX_HEIGHT / 2 + 0.5);
  }
  ctx.globalAlpha = 1;
}

function paintCritical(ctx: CanvasRenderingContext2D, scene: FlameScene, span: number, y: number): void {
  const scale = scene.width / (scene.view.to - scene.view.from);
  ctx.fillStyle = scene.ink.text;
  for (const piece of scene.critical.piecesOf(span)) {
    const from = Math.max(-10, (piece.from - scene.view.from) * scale);
    const to = Math.min(scene.width + 10, (piece.to - scene.view.from) * scale);
    if (to > from) ctx.fillRect(from, y + BOX_HEIGHT - 2.5, Math.max(1, to - from), 2.5);
  }
}

/** Where a span is drawn; null if it is out of sight. */
export function boxOf(scene: FlameScene, span: number): { x: number; y: number; width: number; height: number } | null {
  const { tree, view } = scene;
  const scale = scene.width / (view.to - view.from);
  const x = Math.max(-10, (num(tree.start, span) - view.from) * scale);
  const right = Math.min(scene.width + 10, (num(tree.end, span) - view.from) * scale);
  if (right < 0 || x > scene.width) return null;
  const y = AXIS_HEIGHT + num(scene.lanes.laneOf, span) * LANE_HEIGHT - scene.scrollTop;
  return { x, y, width: Math.max(3, right - x - 1), height: BOX_HEIGHT };
}

function outlineSelected(ctx: CanvasRenderingContext2D, scene: FlameScene): void {
  const box = scene.selected === NONE ? null : boxOf(scene, scene.selected);
  if (!box) return;
  ctx.strokeStyle = scene.ink.text;
  ctx.lineWidth = 2.5;
  ctx.strokeRect(box.x, box.y, box.width, box.height);
}
