// A trace as a waterfall or a flame graph: a canvas for the eyes, and for screen readers the selected span in words.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { store, stored } from "../app/state.ts";
import { formatDuration, formatShare } from "../lib/units.ts";
import { useTheme } from "../ui/colors.ts";
import { useGestures } from "./gestures.ts";
import { fitSelected, keyAction } from "./keys.ts";
import { layoutLanes } from "./lanes.ts";
import { boxOf, type FlameScene, hitFlame, LANE_HEIGHT, paintFlame } from "./paint/flame.ts";
import { readInk } from "./paint/ink.ts";
import { AXIS_HEIGHT, type Scene } from "./paint/scene.ts";
import { hitWaterfall, paintWaterfall, ROW_HEIGHT, type WaterfallScene } from "./paint/waterfall.ts";
import { nearestRow, reveal } from "./rows.ts";
import { Tip, type TipState } from "./tip.tsx";
import { at, NONE, num } from "./tree.ts";
import { useCanvas } from "./use_canvas.ts";
import type { TraceView } from "./use_trace_view.ts";
import { bringIntoView, clampViewport, panViewport, zoomViewport } from "./viewport.ts";

export type TimelineMode = "waterfall" | "flame";

const namesKey = "tuft.trace.names";

function firstNameWidth(width: number): number {
  const saved = Number(stored(namesKey));
  const wanted = saved > 0 ? saved : width < 640 ? 0.42 * width : 0.32 * width;
  return Math.round(Math.min(Math.max(wanted, 110), Math.max(110, width * 0.7), 520));
}

export function Timeline({ state, mode }: { state: TraceView; mode: TimelineMode }) {
  const { tree, rows, view, selected, collapsed } = state;
  const canvas = useRef<HTMLCanvasElement>(null);
  const scroller = useRef<HTMLDivElement>(null);
  const hovered = useRef(NONE);
  const [names, setNames] = useState(0);
  const [tip, setTip] = useState<TipState | null>(null);
  const [band, setBand] = useState<{ left: number; width: number } | null>(null);
  const isDark = useTheme();
  const ink = useMemo(() => readInk(), [isDark]);
  const lanes = useMemo(() => (mode === "flame" ? layoutLanes(tree) : null), [mode, tree]);

  const contentHeight = AXIS_HEIGHT + (lanes ? lanes.lanes.length * LANE_HEIGHT : rows.spans.length * ROW_HEIGHT) + 6;
  const nameWidth = lanes ? 0 : names;

  const baseScene = (): Scene => ({
    ...state,
    ink,
    hovered: hovered.current,
    width: scroller.current?.clientWidth ?? 0,
    height: scroller.current?.clientHeight ?? 0,
    scrollTop: scroller.current?.scrollTop ?? 0,
  });
  const waterfallScene = (): WaterfallScene => ({ ...baseScene(), rows, collapsed, nameWidth });
  const flameScene = (): FlameScene | null => (lanes ? { ...baseScene(), lanes } : null);

  const repaint = useCanvas(
    canvas,
    (ctx) => {
      const flame = flameScene();
      if (flame) paintFlame(ctx, flame);
      else paintWaterfall(ctx, waterfallScene());
    },
    [
      tree,
      rows,
      view,
      selected,
      collapsed,
      state.matches,
      state.critical,
      state.onlyCritical,
      state.colours,
      ink,
      lanes,
      nameWidth,
    ],
  );

  useEffect(() => {
    const box = scroller.current;
    if (!box) return;
    const adapt = () => setNames((now) => firstNameWidth(box.clientWidth) && (now || firstNameWidth(box.clientWidth)));
    adapt();
    const observer = new ResizeObserver(() => setNames((now) => Math.min(now, Math.round(box.clientWidth * 0.7))));
    observer.observe(box);
    return () => observer.disconnect();
  }, []);

  // A span that is selected is brought into sight, in both directions.
  useEffect(() => {
    const box = scroller.current;
    if (selected === NONE || !box) return;
    const open = reveal(tree, collapsed, selected);
    if (open !== collapsed) {
      state.setCollapsed(open);
      return;
    }
    const step = lanes ? LANE_HEIGHT : ROW_HEIGHT;
    const top = (lanes ? num(lanes.laneOf, selected) : nearestRow(tree, rows, selected)) * step;
    const room = box.clientHeight - AXIS_HEIGHT;
    if (top < box.scrollTop || top + step > box.scrollTop + room) box.scrollTop = Math.max(0, top - room / 2);
    const moved = bringIntoView(view, num(tree.start, selected), num(tree.end, selected), tree.duration);
    if (moved !== view) state.setView(moved);
  }, [selected, collapsed, mode, tree]);

  const timeAt = (x: number) => {
    const width = Math.max(1, (scroller.current?.clientWidth ?? 1) - nameWidth);
    return view.from + ((x - nameWidth) / width) * (view.to - view.from);
  };
  const hitSpan = (x: number, y: number) => {
    const flame = flameScene();
    return flame ? hitFlame(flame, x, y) : hitWaterfall(waterfallScene(), x, y).span;
  };

  const gestures = useGestures(scroller, {
    partAt: (x, y) => (lanes ? (y < AXIS_HEIGHT ? "axis" : "time") : hitWaterfall(waterfallScene(), x, y).part),
    hover(x, y) {
      const span = x === null ? NONE : hitSpan(x, y);
      const record = span === NONE || x === null ? null : { x, y, span };
      // The names stand beside the bars of a waterfall, so only a flame graph tells them on hover.
      setTip(record && (lanes || x! > nameWidth) ? record : null);
      if (span === hovered.current) return;
      hovered.current = span;
      // A flame graph may be full of boxes; its frame around the hovered one lies over the canvas.
      if (!lanes) repaint();
    },
    click(x, y, part) {
      const span = hitSpan(x, y);
      if (part === "toggle") state.toggle(span);
      else if (part !== "axis" && part !== "divider") state.select(span);
    },
    open(x, y) {
      const span = hitSpan(x, y);
      if (span !== NONE) state.setView(fitSelected({ tree, view, selected: span }));
    },
    pan: (dx) => {
      const width = Math.max(1, (scroller.current?.clientWidth ?? 1) - nameWidth);
      state.setView(panViewport(view, (-dx / width) * (view.to - view.from), tree.duration));
    },
    zoom: (factor, x) => state.setView(zoomViewport(view, factor, timeAt(x), tree.duration)),
    band(from, to, done) {
      if (!done) {
        setBand({ left: Math.max(nameWidth, Math.min(from, to)), width: Math.abs(to - from) });
        return;
      }
      setBand(null);
      const [a, b] = [timeAt(Math.min(from, to)), timeAt(Math.max(from, to))];
      if (Math.abs(to - from) > 4) state.setView(clampViewport({ from: a, to: b }, tree.duration));
    },
    divide(x, done) {
      const width = scroller.current?.clientWidth ?? 600;
      const next = Math.round(Math.min(Math.max(x, 90), width * 0.7));
      setNames(next);
      if (done) store(namesKey, String(next));
    },
  });

  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(((scroller.current?.clientHeight ?? 0) - AXIS_HEIGHT) / ROW_HEIGHT) - 1);
    const action = keyAction(event.key, event.shiftKey, { ...state, page });
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    if ("select" in action) state.select(action.select);
    else if ("view" in action) state.setView(action.view);
    else if ("collapsed" in action) state.setCollapsed(action.collapsed);
    else state.select(NONE);
  };

  return (
    <div class="tl" style={{ height: `min(${contentHeight}px, var(--tl-max))` }}>
      {/* biome-ignore lint/a11y/noAriaHiddenOnFocusable: a canvas without a tabIndex takes no focus. */}
      <canvas ref={canvas} class="tl-canvas" aria-hidden="true" />
      <div
        ref={scroller}
        class={`tl-scroll part-${gestures.part}`}
        role="application"
        aria-roledescription={mode === "flame" ? "flame graph" : "waterfall"}
        aria-label={`${tree.spans.length} spans. The arrow keys go from span to span; the table view lists them.`}
        tabIndex={0}
        data-keys="timeline"
        onScroll={repaint}
        onKeyDown={onKeyDown}
        {...gestures.handlers}
      >
        <div class="tl-space" style={{ height: `${contentHeight - 1}px` }} />
      </div>
      {band && <div class="tl-band" style={{ left: `${band.left}px`, width: `${band.width}px` }} />}
      {tip && lanes && <HoverFrame tip={tip} scene={flameScene()} />}
      {tip && <Tip state={state} tip={tip} width={scroller.current?.clientWidth ?? 0} />}
      <div class="visually-hidden" aria-live="polite">
        {describeSpan(state, selected)}
      </div>
    </div>
  );
}

function HoverFrame({ tip, scene }: { tip: TipState; scene: FlameScene | null }) {
  const box = scene && boxOf(scene, tip.span);
  if (!box) return null;
  return (
    <div
      class="tl-hover"
      style={{ left: `${box.x}px`, top: `${box.y}px`, width: `${box.width}px`, height: `${box.height}px` }}
    />
  );
}

/** The selected span in one sentence, for those who do not see the picture. */
export function describeSpan(state: TraceView, span: number): string {
  if (span === NONE) return "";
  const { tree } = state;
  const record = at(tree.spans, span);
  const duration = num(tree.end, span) - num(tree.start, span);
  const children = num(tree.childCount, span);
  return [
    record.name,
    formatDuration(duration),
    `${formatShare(duration / tree.duration)} of the trace`,
    `level ${num(tree.depth, span) + 1}`,
    children ? `${children} below it${state.collapsed.has(span) ? ", folded" : ""}` : "",
    record.failed ? "failed" : "",
    state.critical.onPath[span] ? "on the critical path" : "",
  ]
    .filter(Boolean)
    .join(", ");
}
