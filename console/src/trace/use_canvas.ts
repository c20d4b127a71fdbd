// A canvas that fills its parent, sharp on every screen, drawn once a frame at most.

import type { RefObject } from "preact";
import { useCallback, useEffect, useRef } from "preact/hooks";

export interface CanvasSize {
  readonly width: number;
  readonly height: number;
}

/**
 * Draws on a canvas. `paint` is called in the next frame after each change of `inputs` or of the size and each call of
 * the returned function, with coordinates in CSS pixels.
 */
export function useCanvas(
  canvas: RefObject<HTMLCanvasElement | null>,
  paint: (ctx: CanvasRenderingContext2D, size: CanvasSize) => void,
  inputs: readonly unknown[],
): () => void {
  const latest = useRef(paint);
  latest.current = paint;
  const frame = useRef(0);

  const draw = useCallback(() => {
    frame.current = 0;
    const element = canvas.current;
    const box = element?.parentElement;
    const ctx = element?.getContext("2d");
    if (!element || !box || !ctx) return;
    const width = box.clientWidth;
    const height = box.clientHeight;
    if (width === 0 || height === 0) return;
    const ratio = window.devicePixelRatio || 1;
    const pixels = { width: Math.round(width * ratio), height: Math.round(height * ratio) };
    if (element.width !== pixels.width || element.height !== pixels.height) {
      element.width = pixels.width;
      element.height = pixels.height;
      element.style.width = `${width}px`;
      element.style.height = `${height}px`;
    }
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    latest.current(ctx, { width, height });
  }, [canvas]);

  const schedule = useCallback(() => {
    if (frame.current === 0) frame.current = requestAnimationFrame(draw);
  }, [draw]);

  useEffect(() => {
    const box = canvas.current?.parentElement;
    if (!box) return;
    const observer = new ResizeObserver(schedule);
    observer.observe(box);
    return () => {
      observer.disconnect();
      cancelAnimationFrame(frame.current);
      frame.current = 0;
    };
  }, [canvas, schedule]);
  useEffect(schedule, [schedule, ...inputs]);
  return schedule;
}
