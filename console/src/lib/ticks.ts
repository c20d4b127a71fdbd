// Round positions for the marks of an axis.
import { formatNumber } from "./units.ts";

/** Round numbers (1, 2, 5 times a power of ten) within [low, high], about `count` of them. */
export function niceTicks(low: number, high: number, count: number): number[] {
  if (!(high > low) || count < 1) return [];
  return multiples(low, high, niceStep((high - low) / count));
}

function multiples(low: number, high: number, step: number): number[] {
  const ticks: number[] = [];
  // Adding 0 turns a negative zero into zero.
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) ticks.push(i * step + 0);
  return ticks;
}

export function niceStep(rough: number): number {
  const power = 10 ** Math.floor(Math.log10(rough));
  const fraction = rough / power;
  const factor = fraction <= 1.0000001 ? 1 : fraction <= 2 ? 2 : fraction <= 5 ? 5 : 10;
  return factor * power;
}

const second = 1e6;
const roundDurations = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400].map(
  (seconds) => seconds * second,
);

/** The same for durations in microseconds: above a second the steps are those of a clock (1, 5, 15, 30 s, 1 min, ...). */
export function durationTicks(low: number, high: number, count: number): number[] {
  if (!(high > low) || count < 1) return [];
  const rough = (high - low) / count;
  if (rough < second || rough > roundDurations.at(-1)!) return niceTicks(low, high, count);
  const step = roundDurations.find((candidate) => candidate >= rough * 0.9999999)!;
  return multiples(low, high, step);
}

/** On a logarithmic axis 1, 2 and 5 are named; null is a mark that uPlot leaves out. */
export function logTick(tick: number | null): string {
  return tick !== null && /^[125]/.test(tick.toExponential()) ? formatNumber(tick) : "";
}
