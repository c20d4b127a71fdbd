// What a pointer does on a timeline: hover, click, drag, pinch, wheel.

import type { RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

export type Part = "name" | "toggle" | "time" | "axis" | "divider";

export interface Gestures {
  partAt(x: number, y: number): Part;
  /** x is null when the pointer leaves. */
  hover(x: number | null, y: number): void;
  click(x: number, y: number, part: Part): void;
  open(x: number, y: number): void;
  /** The time moves with the pointer by so many pixels. */
  pan(dx: number): void;
  zoom(factor: number, x: number): void;
  /** An interval of the axis is being chosen. */
  band(from: number, to: number, done: boolean): void;
  divide(x: number, done: boolean): void;
}

interface Drag {
  part: Part;
  startX: number;
  startY: number;
  x: number;
  moved: boolean;
}

/** Farther than this a press is a drag. */
const CLICK_PIXELS = 4;

export function useGestures(box: RefObject<HTMLDivElement | null>, actions: Gestures) {
  const latest = useRef(actions);
  latest.current = actions;
  const drag = useRef<Drag | null>(null);
  const touches = useRef(new Map<number, { x: number; y: number }>());
  const [part, setPart] = useState<Part>("time");

  const place = (event: { clientX: number; clientY: number }) => {
    const bounds = box.current?.getBoundingClientRect();
    return { x: event.clientX - (bounds?.left ?? 0), y: event.clientY - (bounds?.top ?? 0) };
  };

  // Preact's handlers of the wheel are passive; this one keeps the browser from zooming the page.
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const onWheel = (event: WheelEvent) => {
      const { x } = place(event);
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        latest.current.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.006), x);
        return;
      }
      const sideways = event.shiftKey && event.deltaX === 0 ? event.deltaY : event.deltaX;
      if (Math.abs(sideways) <= Math.abs(event.deltaY) && !event.shiftKey) return;
      event.preventDefault();
      latest.current.pan(-sideways);
    };
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => element.removeEventListener("wheel", onWheel);
  }, [box]);

  const onPointerDown = (event: PointerEvent) => {
    if (event.button !== 0) return;
    const { x, y } = place(event);
    if (event.pointerType === "touch") touches.current.set(event.pointerId, { x, y });
    if (touches.current.size === 2) {
      drag.current = null;
      return;
    }
    // A press on the scrollbar is the browser's.
    if (x >= (box.current?.clientWidth ?? 0)) return;
    drag.current = { part: latest.current.partAt(x, y), startX: x, startY: y, x, moved: false };
    if (event.pointerType !== "touch") (event.currentTarget as HTMLElement).setPointerCapture(event.pointerId);
  };

  const onPointerMove = (event: PointerEvent) => {
    const { x, y } = place(event);
    if (pinch(event, x, y)) return;
    const now = drag.current;
    if (!now) {
      const next = latest.current.partAt(x, y);
      if (next !== part) setPart(next);
      if (event.pointerType !== "touch") latest.current.hover(x, y);
      return;
    }
    if (!now.moved && Math.abs(x - now.startX) < CLICK_PIXELS) return;
    now.moved = true;
    latest.current.hover(null, 0);
    if (now.part === "divider") latest.current.divide(x, false);
    else if (now.part === "axis") latest.current.band(now.startX, x, false);
    else if (now.part === "time") latest.current.pan(x - now.x);
    now.x = x;
  };

  /** Two fingers: their distance zooms, their middle moves. */
  const pinch = (event: PointerEvent, x: number, y: number): boolean => {
    const held = touches.current;
    if (!held.has(event.pointerId)) return false;
    if (held.size !== 2) {
      held.set(event.pointerId, { x, y });
      return false;
    }
    const before = [...held.values()];
    held.set(event.pointerId, { x, y });
    const after = [...held.values()];
    const gap = (pair: { x: number }[]) => Math.max(8, Math.abs((pair[0]?.x ?? 0) - (pair[1]?.x ?? 0)));
    const middle = (pair: { x: number }[]) => ((pair[0]?.x ?? 0) + (pair[1]?.x ?? 0)) / 2;
    latest.current.zoom(gap(before) / gap(after), middle(after));
    return true;
  };

  const end = (event: PointerEvent, cancelled: boolean) => {
    touches.current.delete(event.pointerId);
    const now = drag.current;
    drag.current = null;
    if (!now) return;
    const { x, y } = place(event);
    if (!now.moved) {
      if (!cancelled) latest.current.click(x, y, now.part);
    } else if (now.part === "divider") {
      latest.current.divide(x, true);
    } else if (now.part === "axis") {
      latest.current.band(now.startX, cancelled ? now.startX : x, true);
    }
  };

  return {
    part,
    handlers: {
      onPointerDown,
      onPointerMove,
      onPointerUp: (event: PointerEvent) => end(event, false),
      onPointerCancel: (event: PointerEvent) => end(event, true),
      onPointerLeave: () => latest.current.hover(null, 0),
      onDblClick: (event: MouseEvent) => {
        const { x, y } = place(event);
        if (latest.current.partAt(x, y) === "time") latest.current.open(x, y);
      },
    },
  };
}
