// The durations of the traces as bars to brush over.

import { useRef, useState } from "preact/hooks";
import type { DurationHistogram } from "../../api/types.ts";
import { setParams } from "../../app/router.ts";
import { formatDuration, formatNumber } from "../../lib/units.ts";
import { classes } from "../../ui/basics.tsx";
import { barHeight, bucketsOf, intervalOf, isInside } from "./durations.ts";

interface Props {
  answer: DurationHistogram;
  min: number | null;
  max: number | null;
}

export function Histogram({ answer, min, max }: Props) {
  const buckets = bucketsOf(answer);
  const box = useRef<HTMLDivElement>(null);
  const [brush, setBrush] = useState<{ from: number; to: number } | null>(null);
  const [focus, setFocus] = useState(0);
  const largest = Math.max(1, ...buckets.map((bucket) => bucket.count));
  const isFiltered = min !== null || max !== null;
  const apply = (from: number, to: number) => {
    const interval = intervalOf(buckets, from, to);
    setParams({ min_duration: interval.min, max_duration: interval.max });
  };
  const indexAt = (event: PointerEvent) => {
    const bounds = box.current?.getBoundingClientRect();
    if (!bounds) return 0;
    const place = Math.floor(((event.clientX - bounds.left) / bounds.width) * buckets.length);
    return Math.min(buckets.length - 1, Math.max(0, place));
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (step) {
      event.preventDefault();
      const next = Math.min(buckets.length - 1, Math.max(0, focus + step));
      setFocus(next);
      setBrush(event.shiftKey ? { from: brush?.from ?? focus, to: next } : null);
      (box.current?.children[next] as HTMLElement | undefined)?.focus();
    } else if (event.key === "Escape" && isFiltered) {
      setParams({ min_duration: null, max_duration: null });
    }
  };
  if (buckets.length === 0) return <div class="chart-none static">None in this time range</div>;
  const inBrush = (i: number) =>
    brush !== null && i >= Math.min(brush.from, brush.to) && i <= Math.max(brush.from, brush.to);
  return (
    <div class="histogram" role="group" aria-label="Durations; choose bars to filter by duration">
      <div
        ref={box}
        class="histogram-bars"
        onKeyDown={onKeyDown}
        onPointerDown={(event) => {
          if (event.button !== 0) return;
          const at = indexAt(event);
          setBrush({ from: at, to: at });
          event.currentTarget.setPointerCapture(event.pointerId);
        }}
        onPointerMove={(event) => brush && event.buttons > 0 && setBrush({ from: brush.from, to: indexAt(event) })}
        onPointerUp={() => {
          if (brush) apply(brush.from, brush.to);
          setBrush(null);
        }}
        onPointerCancel={() => setBrush(null)}
      >
        {buckets.map((bucket, i) => {
          const range = `${formatDuration(bucket.from)} to ${bucket.to === null ? "more" : formatDuration(bucket.to)}`;
          const words = `${range}: ${formatNumber(bucket.count)}${bucket.failed ? `, ${formatNumber(bucket.failed)} failed` : ""}`;
          return (
            <button
              key={bucket.from}
              type="button"
              tabIndex={i === Math.min(focus, buckets.length - 1) ? 0 : -1}
              title={words}
              aria-label={words}
              aria-pressed={isFiltered && isInside(bucket, min, max)}
              class={classes(inBrush(i) && "brush", isFiltered && !isInside(bucket, min, max) && "out")}
              onFocus={() => setFocus(i)}
              onKeyDown={(event) => {
                if (event.key !== "Enter" && event.key !== " ") return;
                event.preventDefault();
                apply(brush?.from ?? i, i);
                setBrush(null);
              }}
            >
              <span class="bar-all" style={{ height: `${barHeight(bucket.count, largest)}%` }}>
                {bucket.failed > 0 && (
                  <span
                    class="bar-failed"
                    style={{ height: `${Math.max(6, (bucket.failed / bucket.count) * 100)}%` }}
                  />
                )}
              </span>
            </button>
          );
        })}
      </div>
      <div class="histogram-axis" aria-hidden="true">
        {buckets.map((bucket, i) =>
          i % Math.max(1, Math.ceil(buckets.length / 6)) === 0 ? (
            <span key={bucket.from} style={{ left: `${(i / buckets.length) * 100}%` }}>
              {formatDuration(bucket.from)}
            </span>
          ) : null,
        )}
      </div>
    </div>
  );
}
