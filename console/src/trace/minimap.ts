// The whole trace as a small picture: how many of the spans of a strip of rows are running at each moment.

import type { Rows } from "./rows.ts";
import { num, type TraceTree } from "./tree.ts";

export interface Minimap {
  readonly width: number;
  readonly height: number;
  /** 0 to 1 for each pixel, line by line: the share of the strip's rows that run there, at least 0.25 if one does. */
  readonly density: Float32Array;
  /** 1 where a failed span runs. */
  readonly failed: Uint8Array;
}

export function drawMinimap(tree: TraceTree, rows: Rows, width: number, height: number): Minimap {
  const count = rows.spans.length;
  const lines = Math.max(1, Math.min(height, count));
  // Differences first and sums afterwards: the work is rows + pixels, not rows times pixels.
  const change = new Float32Array((width + 1) * height);
  const changeFailed = new Float32Array((width + 1) * height);
  const rowsPerLine = count / lines;
  const scale = width / tree.duration;
  for (let row = 0; row < count; ++row) {
    const span = num(rows.spans, row);
    const line = Math.min(lines - 1, Math.floor(row / rowsPerLine));
    const from = Math.min(width - 1, Math.floor(num(tree.start, span) * scale));
    const to = Math.min(width, Math.max(from + 1, Math.ceil(num(tree.end, span) * scale)));
    const base = line * (width + 1);
    change[base + from] = (change[base + from] as number) + 1;
    change[base + to] = (change[base + to] as number) - 1;
    if ((tree.spans[span] as { failed: boolean }).failed) {
      changeFailed[base + from] = (changeFailed[base + from] as number) + 1;
      changeFailed[base + to] = (changeFailed[base + to] as number) - 1;
    }
  }
  const density = new Float32Array(width * height);
  const failed = new Uint8Array(width * height);
  for (let line = 0; line < lines; ++line) {
    let running = 0;
    let broken = 0;
    for (let x = 0; x < width; ++x) {
      running += change[line * (width + 1) + x] as number;
      broken += changeFailed[line * (width + 1) + x] as number;
      if (running > 0) density[line * width + x] = Math.max(0.25, Math.min(1, running / Math.max(1, rowsPerLine)));
      if (broken > 0) failed[line * width + x] = 1;
    }
  }
  return { width, height, density, failed };
}
