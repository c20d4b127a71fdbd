// Lines over time (or another number), with a crosshair that all charts of a page share, a legend with figures, and a
// brush that narrows the page's time range.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { range, setAbsoluteRange, setRange } from "../app/state.ts";
import { logTick } from "../lib/ticks.ts";
import { formatAbsolute, formatClock, formatDay } from "../lib/time.ts";
import {
  formatNumber,
  formatQuantity,
  formatShort,
  formatTick,
  type Quantity,
  quantityWord,
  scaleOf,
} from "../lib/units.ts";
import { classes } from "./basics.tsx";
import { cssColor, mixColors, seriesColor, seriesDash, seriesVar, useTheme } from "./colors.ts";

export interface Series {
  label: string;
  points: (number | null)[];
  /** Index of the palette; by default the place in the list. */
  color?: number;
  dash?: number[];
  width?: number;
  /** Drawn faintly and left out of the legend's order, such as an earlier time. */
  faint?: boolean;
}

export interface Mark {
  x: number;
  y: number;
  title: string;
  onOpen?: () => void;
}

interface ChartProps {
  label: string;
  /** The x values of all series: seconds since the epoch if `time`. */
  x: number[];
  series: Series[];
  quantity: Quantity;
  kind?: "line" | "area" | "stack" | "bars" | "points";
  height?: number;
  /** Whether x is time (default). */
  time?: boolean;
  xLabel?: (x: number) => string;
  /** Where the axis starts and ends; the data's bounds by default. */
  xRange?: [number, number];
  yMin?: number;
  yMax?: number;
  log?: boolean;
  legend?: boolean;
  marks?: Mark[];
  /** What a brushed interval does; the default sets the time range of the page. null: nothing. */
  onBrush?: ((from: number, to: number) => void) | null;
  /** Why there is nothing to see. */
  empty?: string;
  /** The values are whole: so are the marks of the axis. */
  whole?: boolean;
  /** Charts with the same word share their crosshair. */
  sync?: string;
  onOpen?: (label: string) => void;
}

/** x values in seconds for an answer's `start` and `step` in microseconds. */
export function timesOf(start: number, step: number, count: number): number[] {
  return Array.from({ length: count }, (_, i) => (start + i * step) / 1e6);
}

interface Hover {
  index: number;
  left: number;
  top: number;
}

/** Adds each series to those before it; missing values count as nothing. */
export function stackSeries(series: (number | null)[][]): (number | null)[][] {
  const sums: number[] = [];
  return series.map((points) =>
    points.map((value, i) => {
      sums[i] = (sums[i] ?? 0) + (value ?? 0);
      return value === null && sums[i] === 0 ? null : sums[i]!;
    }),
  );
}

const wholeSteps = Array.from({ length: 12 }, (_, i) => [1, 2, 5].map((factor) => factor * 10 ** i)).flat();

export function Chart(props: ChartProps) {
  const { label, x, series, quantity, kind = "line", height = 180, time = true, legend = true, marks } = props;
  const isDark = useTheme();
  const area = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const [hover, setHover] = useState<Hover | null>(null);
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const shown = useMemo(() => series.filter((one) => !hidden.has(one.label)), [series, hidden]);
  const stacked = kind === "stack" || kind === "bars";
  const data = useMemo<uPlot.AlignedData>(() => {
    const points = shown.map((one) => one.points);
    const drawn = stacked ? stackSeries(points).reverse() : points;
    return [x, ...drawn] as uPlot.AlignedData;
  }, [x, shown, stacked]);
  const drawnSeries = stacked ? [...shown].reverse() : shown;
  const indexOf = (one: Series) => one.color ?? series.indexOf(one);
  // The plot is made anew when its form changes, and only gets new data else.
  const form = JSON.stringify([
    drawnSeries.map((one) => [one.label, indexOf(one), one.dash, one.faint, one.width]),
    quantity,
    kind,
    height,
    time,
    props.log,
    props.yMin,
    props.yMax,
    isDark,
    props.sync,
    props.whole,
    Boolean(marks?.length),
  ]);

  useEffect(() => {
    const element = area.current;
    if (!element) return;
    const made = new uPlot(optionsOf(), data, element);
    plot.current = made;
    const observer = new ResizeObserver(() => {
      if (element.clientWidth > 0 && element.clientWidth !== made.width)
        made.setSize({ width: element.clientWidth, height });
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
      setHover(null);
    };
  }, [form]);
  const xLow = props.xRange?.[0];
  const xHigh = props.xRange?.[1];
  useEffect(() => {
    plot.current?.setData(data, true);
  }, [data, xLow, xHigh]);
  useEffect(() => plot.current?.redraw(false), [marks]);

  function optionsOf(): uPlot.Options {
    const text = cssColor("--text-3");
    const grid = cssColor("--grid");
    const font = `11px ${cssColor("--sans") || "sans-serif"}`;
    const axis = { stroke: text, font, ticks: { show: false }, grid: { stroke: grid, width: 1 } };
    const brush = props.onBrush !== null;
    return {
      width: Math.max(area.current!.clientWidth, 60),
      height,
      padding: [8, time ? 24 : 16, 0, 0],
      legend: { show: false },
      cursor: {
        y: false,
        points: { size: 6 },
        drag: { x: brush, y: false, setScale: false },
        ...(time ? { sync: { key: props.sync ?? "page", setSeries: false } } : {}),
        bind: { dblclick: () => () => null },
      },
      scales: {
        x: {
          time,
          range: (_, low, high) => {
            const wanted = latest.current.xRange;
            if (wanted) return wanted;
            return low === high ? [low - 0.5, high + 0.5] : [low, high];
          },
        },
        y: {
          distr: props.log ? 3 : 1,
          range: (_, low, high) => yRange(low, high),
        },
      },
      axes: [
        {
          ...axis,
          space: 70,
          size: 26,
          gap: 6,
          ...(time
            ? {
                values: (_: uPlot, ticks: number[], __: number, ___: number, distance: number) =>
                  timeLabels(ticks, distance),
              }
            : { values: (_: uPlot, ticks: number[]) => ticks.map(latest.current.xLabel ?? formatNumber) }),
        },
        {
          ...axis,
          space: 32,
          gap: 6,
          ...(props.whole ? { incrs: wholeSteps } : {}),
          size: (_, values) => Math.max(40, ...(values ?? []).map((value) => value.length * 6.3 + 14)),
          values: (self, ticks) => {
            const scale = scaleOf(self.scales["y"]!.max ?? 0, quantity);
            const distance = ticks.length > 1 ? ticks[1]! - ticks[0]! : (ticks[0] ?? 0);
            if (props.log) return (ticks as (number | null)[]).map(logTick);
            return ticks.map((tick) => formatTick(tick, scale, distance));
          },
        },
      ],
      series: [{}, ...drawnSeries.map(drawOptions)],
      hooks: {
        setCursor: [onCursor],
        setSelect: [onSelect],
        draw: [drawMarks],
      },
    };
  }

  function yRange(low: number | null, high: number | null): [number, number] {
    const { yMin, yMax, log } = latest.current;
    if (low === null || high === null || !Number.isFinite(low)) return log ? [0.1, 10] : [yMin ?? 0, yMax ?? 1];
    if (log) return [Math.max(low * 0.8, 1e-12), high * 1.25];
    const bottom = yMin ?? Math.min(0, low);
    const top = yMax ?? high + (high - bottom) * 0.06;
    return top > bottom ? [bottom, top] : [bottom, bottom + Math.max(Math.abs(bottom) * 0.1, 1)];
  }

  function drawOptions(one: Series): uPlot.Series {
    const index = indexOf(one);
    const color = seriesColor(index);
    const fill =
      kind === "area"
        ? `${color}1f`
        : stacked
          ? mixColors(color, cssColor("--surface"), kind === "bars" ? 0.9 : 0.5)
          : undefined;
    return {
      label: one.label,
      stroke: one.faint ? `${color}80` : color,
      width: kind === "points" ? 0 : (one.width ?? (one.faint ? 1 : 1.6)),
      ...(fill ? { fill } : {}),
      ...((one.dash ?? seriesDash(index)) ? { dash: one.dash ?? seriesDash(index)! } : {}),
      ...(kind === "bars" ? { paths: uPlot.paths.bars!({ size: [0.9, 60, 1], align: 1 }) } : {}),
      points: kind === "points" ? { show: true, size: 4, fill: color } : { show: isLonely, size: 4, fill: color },
      spanGaps: false,
    };
  }

  function onCursor(self: uPlot) {
    const { idx, left, top } = self.cursor;
    // Charts that only share the crosshair show no box over their lines.
    if (idx === null || idx === undefined || left === undefined || left < 0 || !self.over.matches(":hover"))
      setHover(null);
    else
      setHover({
        index: idx,
        left: left + self.bbox.left / devicePixelRatio,
        top: (top ?? 0) + self.bbox.top / devicePixelRatio,
      });
  }

  function onSelect(self: uPlot) {
    const { left, width } = self.select;
    if (width < 4) return;
    const from = self.posToVal(left, "x");
    const to = self.posToVal(left + width, "x");
    self.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    const onBrush = latest.current.onBrush;
    if (onBrush) onBrush(from, to);
    else if (onBrush === undefined && time) setAbsoluteRange(from * 1e6, to * 1e6);
  }

  function drawMarks(self: uPlot) {
    const context = self.ctx;
    const color = cssColor("--text");
    for (const mark of latest.current.marks ?? []) {
      const px = self.valToPos(mark.x, "x", true);
      const py = self.valToPos(mark.y, "y", true);
      const size = 4 * devicePixelRatio;
      context.beginPath();
      context.moveTo(px, py - size);
      context.lineTo(px + size, py);
      context.lineTo(px, py + size);
      context.lineTo(px - size, py);
      context.closePath();
      context.fillStyle = color;
      context.fill();
      context.strokeStyle = cssColor("--surface");
      context.lineWidth = devicePixelRatio;
      context.stroke();
    }
  }

  const markNear = hover && marks ? nearestMark(plot.current, marks, hover) : null;
  const word = quantityWord(quantity);
  const none = !series.some((one) => one.points.some((value) => value !== null));
  return (
    <div class="chart">
      <div
        class={classes("chart-area", none && "blank")}
        ref={area}
        style={{ height: `${height}px`, cursor: markNear?.onOpen ? "pointer" : undefined }}
        role="img"
        aria-label={describe(label, series, quantity)}
        onClick={() => markNear?.onOpen?.()}
        onDblClick={() => {
          if (time && props.onBrush === undefined && range.value.until) setRange({ from: "-1h", until: "" });
        }}
      >
        {none && <div class="chart-none">{props.empty ?? "No data in this time range"}</div>}
      </div>
      {word && !none && <div class="chart-unit">{word}</div>}
      {hover && !none && (
        <Tip
          {...{ hover, x, series: shown, indexOf, quantity, time, mark: markNear }}
          xLabel={props.xLabel}
          width={area.current?.clientWidth ?? 300}
        />
      )}
      {legend && series.length > 0 && (
        <Legend
          series={series}
          indexOf={indexOf}
          quantity={quantity}
          hidden={hidden}
          setHidden={setHidden}
          onOpen={props.onOpen}
        />
      )}
    </div>
  );
}

/** Points are shown only where no line can be: a value between two gaps. */
function isLonely(self: uPlot, index: number): boolean {
  const values = self.data[index];
  if (!values) return false;
  let lines = 0;
  let points = 0;
  for (let i = 0; i < values.length; i++) {
    if (values[i] === null || values[i] === undefined) continue;
    points++;
    if (i > 0 && values[i - 1] !== null && values[i - 1] !== undefined) lines++;
  }
  return points > 0 && lines < points / 2;
}

function nearestMark(plot: uPlot | null, marks: Mark[], hover: Hover): Mark | null {
  if (!plot) return null;
  let best: Mark | null = null;
  let distance = 12;
  for (const mark of marks) {
    const dx = plot.valToPos(mark.x, "x") + plot.bbox.left / devicePixelRatio - hover.left;
    const dy = plot.valToPos(mark.y, "y") + plot.bbox.top / devicePixelRatio - hover.top;
    const away = Math.hypot(dx, dy);
    if (away < distance) {
      distance = away;
      best = mark;
    }
  }
  return best;
}

function timeLabels(ticks: number[], distance: number): string[] {
  let day = "";
  return ticks.map((tick) => {
    const micros = tick * 1e6;
    const today = formatDay(micros);
    const clock = distance >= 60 ? formatClock(micros).slice(0, 5) : formatClock(micros);
    const label = distance >= 86400 || (day && today !== day) ? today.slice(5) : clock;
    day = today;
    return label;
  });
}

function describe(label: string, series: Series[], quantity: Quantity): string {
  const parts = series.slice(0, 8).map((one) => {
    const last = one.points.findLast((value) => value !== null);
    return `${one.label || label}: ${formatQuantity(last, quantity)}`;
  });
  return `${label}. ${parts.length ? `Newest values: ${parts.join("; ")}` : "No data"}.`;
}

interface TipProps {
  hover: Hover;
  x: number[];
  series: Series[];
  indexOf: (one: Series) => number;
  quantity: Quantity;
  time: boolean;
  xLabel?: (x: number) => string;
  width: number;
  mark: Mark | null;
}

function Tip({ hover, x, series, indexOf, quantity, time, xLabel, width, mark }: TipProps) {
  const at = x[hover.index];
  if (at === undefined) return null;
  const rows = series
    .map((one) => ({ one, value: one.points[hover.index] ?? null }))
    .filter((row) => row.value !== null)
    .sort((a, b) => b.value! - a.value!);
  const right = hover.left > width / 2;
  return (
    <div
      class="chart-tip"
      style={
        right ? { right: `${width - hover.left + 12}px`, top: "6px" } : { left: `${hover.left + 12}px`, top: "6px" }
      }
    >
      <div class="chart-tip-time">
        {time ? formatAbsolute(at * 1e6).replace(/\.000/, "") : (xLabel ?? formatNumber)(at)}
      </div>
      {rows.slice(0, 12).map(({ one, value }) => (
        <div class="chart-tip-row" key={one.label}>
          <span
            class="swatch"
            style={{ background: `var(${seriesVar(indexOf(one))})`, opacity: one.faint ? 0.5 : 1 }}
          />
          <span class="clip">{one.label}</span>
          <b>{formatQuantity(value, quantity)}</b>
        </div>
      ))}
      {rows.length > 12 && <div class="muted">{rows.length - 12} more</div>}
      {rows.length === 0 && <div class="muted">No value</div>}
      {mark && <div class="chart-tip-time">{mark.title}</div>}
    </div>
  );
}

interface LegendProps {
  series: Series[];
  indexOf: (one: Series) => number;
  quantity: Quantity;
  hidden: ReadonlySet<string>;
  setHidden: (hidden: ReadonlySet<string>) => void;
  onOpen?: (label: string) => void;
}

/** A press on a name shows only it, another press all; with Ctrl or Shift it is added or removed. */
function Legend({ series, indexOf, quantity, hidden, setHidden, onOpen }: LegendProps) {
  const names = series.map((one) => one.label);
  if (series.length === 1 && !series[0]!.label) return null;
  const press = (name: string, add: boolean) => {
    if (onOpen && !add) return onOpen(name);
    if (add) {
      const next = new Set(hidden);
      if (!next.delete(name)) next.add(name);
      setHidden(next.size === names.length ? new Set() : next);
    } else {
      const alone = names.every((other) => hidden.has(other) === (other !== name));
      setHidden(alone || names.length === 1 ? new Set() : new Set(names.filter((other) => other !== name)));
    }
  };
  return (
    <div class="legend-scroll" tabIndex={series.length > 5 ? 0 : undefined}>
      <table class="legend">
        <thead>
          <tr>
            <th scope="col">
              <span class="visually-hidden">Series</span>
            </th>
            <th scope="col">last</th>
            <th scope="col" class="mean">
              mean
            </th>
            <th scope="col">max</th>
          </tr>
        </thead>
        <tbody>
          {series.map((one) => {
            const known = one.points.filter((value): value is number => value !== null);
            const mean = known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
            const index = indexOf(one);
            return (
              <tr key={one.label}>
                <td>
                  <button
                    type="button"
                    aria-pressed={!hidden.has(one.label)}
                    title={onOpen ? one.label : `${one.label}: show only this; with Ctrl add or remove it`}
                    onClick={(event) => press(one.label, event.ctrlKey || event.metaKey || event.shiftKey)}
                  >
                    <span
                      class={classes("swatch")}
                      style={{ background: `var(${seriesVar(index)})`, opacity: one.faint ? 0.5 : 1 }}
                    />
                    <span>{one.label}</span>
                  </button>
                </td>
                <td>{formatShort(known.at(-1), quantity)}</td>
                <td class="mean">{formatShort(mean, quantity)}</td>
                <td>{formatShort(known.length ? Math.max(...known) : null, quantity)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
