// The waterfall: a row for each span, with its name on the left and its bar in time on the right.
//
// Only the rows in sight are drawn, so a frame costs the same for a hundred spans and for a hundred thousand.

import { formatDuration } from "../../lib/units.ts";
import { levelRank } from "../marks.ts";
import { inkOn } from "../palette.ts";
import type { Rows } from "../rows.ts";
import { at, NONE, num } from "../tree.ts";
import { type AxisPlace, paintAxis, paintGrid } from "./axis.ts";
import { AXIS_HEIGHT, isPale, type Scene } from "./scene.ts";
import { clipText, textWidth } from "./text.ts";

export const ROW_HEIGHT = 24;
const INDENT = 13;
const TOGGLE = 16;
const PAD = 8;

export interface WaterfallScene extends Scene {
  readonly rows: Rows;
  readonly collapsed: ReadonlySet<number>;
  readonly nameWidth: number;
}

export interface WaterfallHit {
  readonly span: number;
  readonly part: "name" | "toggle" | "time" | "axis" | "divider";
}

/** The left edge of a row's name. Deep rows are indented less, so that their names keep half of the column. */
export function indentOf(depth: number, maxDepth: number, nameWidth: number): number {
  const step = Math.min(INDENT, (nameWidth * 0.5) / Math.max(1, maxDepth));
  return PAD + depth * step;
}

export function hitWaterfall(scene: WaterfallScene, x: number, y: number): WaterfallHit {
  if (Math.abs(x - scene.nameWidth) <= 4) return { span: NONE, part: "divider" };
  if (y < AXIS_HEIGHT) return { span: NONE, part: "axis" };
  const row = Math.floor((y - AXIS_HEIGHT + scene.scrollTop) / ROW_HEIGHT);
  const span = row >= 0 && row < scene.rows.spans.length ? num(scene.rows.spans, row) : NONE;
  if (x > scene.nameWidth || span === NONE) return { span, part: "time" };
  const indent = indentOf(num(scene.tree.depth, span), scene.tree.maxDepth, scene.nameWidth);
  const isToggle = num(scene.tree.childCount, span) > 0 && x >= indent - 4 && x < indent + TOGGLE;
  return { span, part: isToggle ? "toggle" : "name" };
}

export function paintWaterfall(ctx: CanvasRenderingContext2D, scene: WaterfallScene): void {
  const { ink, rows, width, height, nameWidth, scrollTop } = scene;
  const place: AxisPlace = { left: nameWidth, width: width - nameWidth, height };
  ctx.clearRect(0, 0, width, height);
  paintGrid(ctx, scene.view, place, ink);
  const first = Math.max(0, Math.floor(scrollTop / ROW_HEIGHT));
  const last = Math.min(rows.spans.length, Math.ceil((scrollTop + height - AXIS_HEIGHT) / ROW_HEIGHT));
  ctx.textBaseline = "middle";
  for (let row = first; row < last; ++row) {
    const span = num(rows.spans, row);
    const y = AXIS_HEIGHT + row * ROW_HEIGHT - scrollTop;
    paintBackground(ctx, scene, span, y);
    const pale = isPale(scene, span);
    ctx.globalAlpha = pale ? 0.32 : 1;
    paintName(ctx, scene, span, y);
    paintBar(ctx, scene, span, y);
    ctx.globalAlpha = 1;
  }
  ctx.fillStyle = ink.line;
  ctx.fillRect(nameWidth, 0, 1, height);
  paintAxis(ctx, scene.view, place, ink);
  ctx.fillStyle = ink.surface;
  ctx.fillRect(0, 0, nameWidth, AXIS_HEIGHT - 1);
  ctx.fillStyle = ink.text3;
  ctx.font = ink.fontSmall;
  const count = rows.spans.length;
  const hidden = scene.tree.spans.length - count;
  const words = `${count.toLocaleString("en-US")} spans${hidden > 0 ? `, ${hidden.toLocaleString("en-US")} folded` : ""}`;
  ctx.fillText(clipText(ctx, words, nameWidth - 2 * PAD), PAD, AXIS_HEIGHT / 2);
}

function paintBackground(ctx: CanvasRenderingContext2D, scene: WaterfallScene, span: number, y: number): void {
  const { ink } = scene;
  if (span === scene.selected) {
    ctx.fillStyle = ink.accentSoft;
    ctx.fillRect(0, y, scene.width, ROW_HEIGHT);
    ctx.fillStyle = ink.accent;
    ctx.fillRect(0, y, 3, ROW_HEIGHT);
  } else if (span === scene.hovered) {
    ctx.fillStyle = ink.surface2;
    ctx.fillRect(0, y, scene.width, ROW_HEIGHT);
  }
}

function paintName(ctx: CanvasRenderingContext2D, scene: WaterfallScene, span: number, y: number): void {
  const { tree, ink, nameWidth } = scene;
  const middle = y + ROW_HEIGHT / 2;
  const depth = num(tree.depth, span);
  const x = indentOf(depth, tree.maxDepth, nameWidth);
  const record = at(tree.spans, span);
  const isOpen = !scene.collapsed.has(span);
  paintGuides(ctx, scene, depth, y);
  if (num(tree.childCount, span) > 0) paintToggle(ctx, ink.text2, x + 6, middle, isOpen);
  ctx.fillStyle = at(scene.colours, span);
  ctx.fillRect(x + TOGGLE, y + 6, 3, ROW_HEIGHT - 12);

  let right = nameWidth - PAD;
  if (record.failed) {
    paintCross(ctx, ink.bad, right - 5, middle);
    right -= 16;
  }
  if (!isOpen) right = paintCount(ctx, scene, num(tree.subtreeEnd, span) - num(tree.place, span) - 1, right, middle);
  const left = x + TOGGLE + 8;
  ctx.font = span === scene.selected ? ink.fontStrong : ink.font;
  const name = clipText(ctx, record.name, right - left);
  if (scene.matches?.matched[span] === 1) {
    ctx.fillStyle = ink.mark;
    ctx.fillRect(left - 2, y + 4, textWidth(ctx, name) + 4, ROW_HEIGHT - 8);
  }
  ctx.fillStyle = record.failed ? ink.bad : ink.text;
  ctx.fillText(name, left, middle + 0.5);
  const taken = textWidth(ctx, name) + 8;
  const parent = num(tree.parent, span);
  const above = parent === NONE ? null : at(tree.spans, parent);
  if (!above || above.service !== record.service || above.worker !== record.worker) {
    ctx.font = ink.fontSmall;
    ctx.fillStyle = ink.text3;
    const whose = record.worker ? `${record.service} · ${record.worker}` : record.service;
    ctx.fillText(clipText(ctx, whose, right - left - taken), left + taken, middle + 0.5);
  }
}

function paintGuides(ctx: CanvasRenderingContext2D, scene: WaterfallScene, depth: number, y: number): void {
  if (depth > 24) return;
  ctx.fillStyle = scene.ink.grid;
  for (let level = 0; level < depth; ++level) {
    ctx.fillRect(Math.round(indentOf(level, scene.tree.maxDepth, scene.nameWidth) + 6), y, 1, ROW_HEIGHT);
  }
}

function paintToggle(ctx: CanvasRenderingContext2D, colour: string, x: number, y: number, open: boolean): void {
  ctx.fillStyle = colour;
  ctx.beginPath();
  if (open) {
    ctx.moveTo(x - 4, y - 2);
    ctx.lineTo(x + 4, y - 2);
    ctx.lineTo(x, y + 3);
  } else {
    ctx.moveTo(x - 2, y - 4);
    ctx.lineTo(x + 3, y);
    ctx.lineTo(x - 2, y + 4);
  }
  ctx.fill();
}

function paintCross(ctx: CanvasRenderingContext2D, colour: string, x: number, y: number): void {
  ctx.strokeStyle = colour;
  ctx.lineWidth = 2;
  ctx.beginPath();
  ctx.moveTo(x - 3.5, y - 3.5);
  ctx.lineTo(x + 3.5, y + 3.5);
  ctx.moveTo(x + 3.5, y - 3.5);
  ctx.lineTo(x - 3.5, y + 3.5);
  ctx.stroke();
}

/** How many spans a collapsed one hides. Returns the new right edge of the name. */
function paintCount(
  ctx: CanvasRenderingContext2D,
  scene: WaterfallScene,
  hidden: number,
  right: number,
  y: number,
): number {
  ctx.font = scene.ink.fontSmall;
  const text = `+${hidden.toLocaleString("en-US")}`;
  const width = textWidth(ctx, text) + 10;
  ctx.fillStyle = scene.ink.surface3;
  ctx.beginPath();
  ctx.roundRect(right - width, y - 8, width, 16, 8);
  ctx.fill();
  ctx.fillStyle = scene.ink.text2;
  ctx.fillText(text, right - width + 5, y + 0.5);
  return right - width - 6;
}

function paintBar(ctx: CanvasRenderingContext2D, scene: WaterfallScene, span: number, y: number): void {
  const { tree, view, ink } = scene;
  const left = scene.nameWidth + 1;
  const room = scene.width - left;
  const scale = room / (view.to - view.from);
  const start = num(tree.start, span);
  const end = num(tree.end, span);
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, y, room, ROW_HEIGHT);
  ctx.clip();
  if (end < view.from || start > view.to) {
    paintArrow(ctx, ink.text3, start > view.to ? scene.width - 8 : left + 8, y + ROW_HEIGHT / 2, start > view.to);
    ctx.restore();
    return;
  }
  // Canvas coordinates far outside lose precision; the bar's edges are brought near.
  const x0 = left + Math.max(-10, (start - view.from) * scale);
  const x1 = left + Math.min(room + 10, (end - view.from) * scale);
  const width = Math.max(2, x1 - x0);
  ctx.fillStyle = at(scene.colours, span);
  ctx.beginPath();
  ctx.roundRect(x0, y + 5, width, ROW_HEIGHT - 11, 2.5);
  ctx.fill();
  if (at(tree.spans, span).failed) {
    ctx.strokeStyle = ink.bad;
    ctx.lineWidth = 1.5;
    ctx.stroke();
  }
  ctx.fillStyle = ink.text;
  for (const piece of scene.critical.piecesOf(span)) {
    const from = left + (piece.from - view.from) * scale;
    ctx.fillRect(from, y + ROW_HEIGHT - 5, Math.max(1.5, (piece.to - piece.from) * scale), 2.5);
  }
  paintMarks(ctx, scene, span, y, left, scale);
  paintDuration(ctx, scene, formatDuration(end - start), x0, x0 + width, y, left, at(scene.colours, span));
  ctx.restore();
}

function paintArrow(ctx: CanvasRenderingContext2D, colour: string, x: number, y: number, right: boolean): void {
  const d = right ? 3 : -3;
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1.5;
  ctx.beginPath();
  ctx.moveTo(x - d, y - 4);
  ctx.lineTo(x + d, y);
  ctx.lineTo(x - d, y + 4);
  ctx.stroke();
}

/** Events are diamonds, log records are discs below them; a warning or an error has its colour and is larger. */
function paintMarks(
  ctx: CanvasRenderingContext2D,
  scene: WaterfallScene,
  span: number,
  y: number,
  left: number,
  scale: number,
): void {
  const { tree, view, ink } = scene;
  const toX = (time: number) => left + (time - tree.origin + num(tree.shift, span) - view.from) * scale;
  ctx.lineWidth = 1;
  ctx.strokeStyle = ink.surface;
  for (const event of at(tree.spans, span).events) {
    const x = toX(event.time);
    if (x < left - 5 || x > scene.width + 5) continue;
    ctx.fillStyle = event.name === "exception" ? ink.bad : ink.text2;
    ctx.beginPath();
    ctx.moveTo(x, y + 6);
    ctx.lineTo(x + 4.5, y + 10.5);
    ctx.lineTo(x, y + 15);
    ctx.lineTo(x - 4.5, y + 10.5);
    ctx.closePath();
    ctx.fill();
    ctx.stroke();
  }
  for (const k of scene.logsOf.get(span) ?? []) {
    const log = at(scene.logs, k);
    const x = toX(log.time);
    if (x < left - 5 || x > scene.width + 5) continue;
    const rank = levelRank(log.level);
    ctx.fillStyle = rank >= 3 ? ink.bad : rank === 2 ? ink.warn : ink.text2;
    ctx.beginPath();
    ctx.arc(x, y + ROW_HEIGHT - 6, rank >= 2 ? 4 : 3, 0, Math.PI * 2);
    ctx.fill();
    ctx.stroke();
  }
}

/** The duration stands right of the bar, else left of it, else in it. */
function paintDuration(
  ctx: CanvasRenderingContext2D,
  scene: WaterfallScene,
  text: string,
  x0: number,
  x1: number,
  y: number,
  left: number,
  colour: string,
): void {
  ctx.font = scene.ink.fontSmall;
  ctx.fillStyle = scene.ink.text2;
  const width = textWidth(ctx, text);
  // The middle of the bar, not of the row.
  const middle = y + 5 + (ROW_HEIGHT - 11) / 2 + 0.5;
  if (x1 + 6 + width <= scene.width) {
    ctx.fillText(text, Math.max(x1, left) + 6, middle);
  } else if (x0 - 6 - width >= left) {
    ctx.fillText(text, x0 - 6 - width, middle);
  } else {
    const x = Math.max(left, x0) + 6;
    ctx.fillStyle = inkOn(colour);
    ctx.fillText(text, x, middle);
  }
}
