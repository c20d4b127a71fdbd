// The part of a trace's time that is shown, and the arithmetic of zooming it. Times are relative to the trace's origin.

export interface Viewport {
  readonly from: number;
  readonly to: number;
}

/** The shortest time that is worth showing, in microseconds. */
export const SHORTEST_US = 0.5;

/** The window moved and shortened so that it lies in the trace. */
export function clampViewport(view: Viewport, duration: number): Viewport {
  const length = Math.min(Math.max(view.to - view.from, Math.min(SHORTEST_US, duration)), duration);
  const from = Math.min(Math.max(0, view.from), duration - length);
  return { from, to: from + length };
}

/** The window `factor` times as long, with the moment `around` at the same place of the screen. */
export function zoomViewport(view: Viewport, factor: number, around: number, duration: number): Viewport {
  const from = around - (around - view.from) * factor;
  const to = around + (view.to - around) * factor;
  if (to - from < SHORTEST_US) return view;
  return clampViewport({ from, to }, duration);
}

export function panViewport(view: Viewport, by: number, duration: number): Viewport {
  return clampViewport({ from: view.from + by, to: view.to + by }, duration);
}

/** A window around a span, with some room on both sides. */
export function fitSpan(start: number, end: number, duration: number): Viewport {
  const room = Math.max((end - start) * 0.05, SHORTEST_US / 2);
  return clampViewport({ from: start - room, to: end + room }, duration);
}

/** The same window, moved if a span is outside of it. */
export function bringIntoView(view: Viewport, start: number, end: number, duration: number): Viewport {
  if (start < view.to && end > view.from) return view;
  const length = view.to - view.from;
  const middle = end - start >= length ? start + length / 2 : (start + end) / 2;
  return clampViewport({ from: middle - length / 2, to: middle + length / 2 }, duration);
}

export function isWhole(view: Viewport, duration: number): boolean {
  return view.from <= duration * 1e-9 && view.to >= duration * (1 - 1e-9);
}

/** "1200.5-3400" -> the window; null: the text is none. */
export function parseZoom(text: string): Viewport | null {
  const match = /^(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)$/.exec(text);
  if (!match) return null;
  const view = { from: Number(match[1]), to: Number(match[2]) };
  return view.to > view.from ? view : null;
}

export function formatZoom(view: Viewport): string {
  const digits = view.to - view.from < 1000 ? 3 : 0;
  return `${view.from.toFixed(digits)}-${view.to.toFixed(digits)}`;
}
