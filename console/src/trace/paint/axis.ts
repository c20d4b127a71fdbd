// The axis of time above the rows and its lines behind them.

import { timeTicks } from "../ticks.ts";
import type { Viewport } from "../viewport.ts";
import type { Ink } from "./ink.ts";
import { AXIS_HEIGHT } from "./scene.ts";

export interface AxisPlace {
  readonly left: number;
  readonly width: number;
  readonly height: number;
}

const spacingOf = (width: number) => (width < 420 ? 72 : 96);

export function paintGrid(ctx: CanvasRenderingContext2D, view: Viewport, place: AxisPlace, ink: Ink): void {
  ctx.fillStyle = ink.grid;
  const scale = place.width / (view.to - view.from);
  for (const tick of timeTicks(view.from, view.to, place.width, spacingOf(place.width))) {
    ctx.fillRect(Math.round(place.left + (tick.time - view.from) * scale), AXIS_HEIGHT, 1, place.height - AXIS_HEIGHT);
  }
}

export function paintAxis(ctx: CanvasRenderingContext2D, view: Viewport, place: AxisPlace, ink: Ink): void {
  ctx.fillStyle = ink.surface;
  ctx.fillRect(place.left, 0, place.width, AXIS_HEIGHT);
  ctx.fillStyle = ink.line;
  ctx.fillRect(0, AXIS_HEIGHT - 1, place.left + place.width, 1);
  ctx.font = ink.fontSmall;
  ctx.textBaseline = "middle";
  const scale = place.width / (view.to - view.from);
  for (const tick of timeTicks(view.from, view.to, place.width, spacingOf(place.width))) {
    const x = Math.round(place.left + (tick.time - view.from) * scale);
    ctx.fillStyle = ink.lineStrong;
    ctx.fillRect(x, AXIS_HEIGHT - 6, 1, 5);
    ctx.fillStyle = ink.text2;
    if (x + 50 < place.left + place.width) ctx.fillText(tick.label, x + 4, AXIS_HEIGHT / 2);
  }
}
