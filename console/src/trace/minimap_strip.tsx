// The whole trace above the timeline: where the window is, and a way to move it.

import { useMemo, useRef } from "preact/hooks";
import { useTheme } from "../ui/colors.ts";
import type { CriticalPath } from "./critical.ts";
import { drawMinimap, type Minimap } from "./minimap.ts";
import { type Ink, readInk } from "./paint/ink.ts";
import { NONE, num } from "./tree.ts";
import { useCanvas } from "./use_canvas.ts";
import type { TraceView } from "./use_trace_view.ts";
import { clampViewport, isWhole, type Viewport } from "./viewport.ts";

const HEIGHT = 52;

/** Draws the picture of the spans once; afterwards only the window over it changes. */
function render(map: Minimap, ink: Ink): HTMLCanvasElement {
  const picture = document.createElement("canvas");
  picture.width = map.width;
  picture.height = map.height;
  const ctx = picture.getContext("2d");
  if (!ctx) return picture;
  for (let y = 0; y < map.height; ++y) {
    for (let x = 0; x < map.width; ) {
      const k = y * map.width + x;
      const density = map.density[k] as number;
      const failed = map.failed[k] as number;
      let run = 1;
      while (x + run < map.width && map.density[k + run] === density && map.failed[k + run] === failed) ++run;
      if (density > 0) {
        ctx.globalAlpha = failed ? 1 : 0.25 + 0.6 * density;
        ctx.fillStyle = failed ? ink.bad : ink.text3;
        ctx.fillRect(x, y, run, 1);
      }
      x += run;
    }
  }
  return picture;
}

/** With few spans each has its colour and a line of its own, which may be thicker than a pixel. */
const COLOURED_MAX = 3000;

function renderColoured(state: TraceView, width: number, height: number): HTMLCanvasElement {
  const picture = document.createElement("canvas");
  const ratio = window.devicePixelRatio || 1;
  picture.width = Math.round(width * ratio);
  picture.height = Math.round(height * ratio);
  const ctx = picture.getContext("2d");
  if (!ctx) return picture;
  ctx.scale(ratio, ratio);
  const { tree, rows, colours } = state;
  const pitch = Math.min(5, height / rows.spans.length);
  const scale = width / tree.duration;
  for (let row = 0; row < rows.spans.length; ++row) {
    const span = num(rows.spans, row);
    ctx.fillStyle = colours[span] as string;
    const x = num(tree.start, span) * scale;
    ctx.fillRect(x, row * pitch, Math.max(1, num(tree.end, span) * scale - x), Math.max(0.8, pitch - 1));
  }
  return picture;
}

type Grip = "from" | "to" | "move" | "new";

export function MinimapStrip({ state }: { state: TraceView }) {
  const { tree, rows, view } = state;
  const canvas = useRef<HTMLCanvasElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const isDark = useTheme();
  const ink = useMemo(() => readInk(), [isDark]);
  const picture = useRef<{ key: unknown[]; image: HTMLCanvasElement } | null>(null);
  const grip = useRef<{ kind: Grip; at: number; view: Viewport } | null>(null);

  useCanvas(
    canvas,
    (ctx, { width, height }) => {
      const key = [tree, rows, state.colours, ink, width];
      if (!picture.current?.key.every((part, i) => part === key[i])) {
        const image =
          rows.spans.length <= COLOURED_MAX
            ? renderColoured(state, width, HEIGHT - 8)
            : render(drawMinimap(tree, rows, Math.max(1, Math.round(width)), HEIGHT - 8), ink);
        picture.current = { key, image };
      }
      ctx.clearRect(0, 0, width, height);
      ctx.drawImage(picture.current.image, 0, 3, width, HEIGHT - 8);
      paintCritical(ctx, state.critical, tree.duration, width, height, ink);
      const scale = width / tree.duration;
      if (state.selected !== NONE) {
        ctx.fillStyle = ink.accent;
        const x = num(tree.start, state.selected) * scale;
        ctx.fillRect(x, 0, Math.max(2, (num(tree.end, state.selected) - num(tree.start, state.selected)) * scale), 3);
      }
      if (!isWhole(view, tree.duration)) paintWindow(ctx, view.from * scale, view.to * scale, width, height, ink);
    },
    [tree, rows, view, state.selected, state.colours, state.critical, ink],
  );

  const timeOf = (event: PointerEvent) => {
    const bounds = box.current?.getBoundingClientRect();
    return bounds ? ((event.clientX - bounds.left) / bounds.width) * tree.duration : 0;
  };
  const gripAt = (time: number): Grip => {
    const near = (tree.duration / (box.current?.clientWidth ?? 1)) * 6;
    if (isWhole(view, tree.duration)) return "new";
    if (Math.abs(time - view.from) < near) return "from";
    if (Math.abs(time - view.to) < near) return "to";
    return time > view.from && time < view.to ? "move" : "new";
  };
  const onPointerMove = (event: PointerEvent) => {
    const now = grip.current;
    if (!now) return;
    const time = timeOf(event);
    const delta = time - now.at;
    const next =
      now.kind === "move"
        ? { from: now.view.from + delta, to: now.view.to + delta }
        : now.kind === "from"
          ? { from: Math.min(time, view.to), to: view.to }
          : now.kind === "to"
            ? { from: view.from, to: Math.max(time, view.from) }
            : { from: Math.min(now.at, time), to: Math.max(now.at, time) };
    if (next.to - next.from > tree.duration / 2000) state.setView(clampViewport(next, tree.duration));
  };

  return (
    <div
      ref={box}
      class="tl-minimap"
      role="img"
      aria-label="The whole trace. Drag over it to choose a part; the keys + and - of the timeline do the same."
      onPointerDown={(event) => {
        const time = timeOf(event);
        grip.current = { kind: gripAt(time), at: time, view };
        event.currentTarget.setPointerCapture(event.pointerId);
      }}
      onPointerMove={onPointerMove}
      onPointerUp={() => {
        grip.current = null;
      }}
      onPointerCancel={() => {
        grip.current = null;
      }}
      onDblClick={() => state.setView({ from: 0, to: tree.duration })}
    >
      <canvas ref={canvas} class="tl-canvas" />
    </div>
  );
}

function paintCritical(
  ctx: CanvasRenderingContext2D,
  critical: CriticalPath,
  duration: number,
  width: number,
  height: number,
  ink: Ink,
): void {
  ctx.fillStyle = ink.text;
  for (const piece of critical.pieces) {
    const from = (piece.from / duration) * width;
    const to = (piece.to / duration) * width;
    // A gap between the pieces shows where the path goes from one span to the next.
    ctx.fillRect(from, height - 3, Math.max(1, to - from - 1), 2);
  }
}

function paintWindow(
  ctx: CanvasRenderingContext2D,
  from: number,
  to: number,
  width: number,
  height: number,
  ink: Ink,
): void {
  ctx.globalAlpha = 0.66;
  ctx.fillStyle = ink.surface2;
  ctx.fillRect(0, 0, from, height);
  ctx.fillRect(to, 0, width - to, height);
  ctx.globalAlpha = 1;
  ctx.fillStyle = ink.accent;
  ctx.fillRect(from - 1, 0, 2, height);
  ctx.fillRect(to - 1, 0, 2, height);
  for (const x of [from, to]) {
    ctx.beginPath();
    ctx.roundRect(x - 4, height / 2 - 9, 8, 18, 3);
    ctx.fill();
  }
}
