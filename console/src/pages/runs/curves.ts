// The curves of runs: smoothing, and several runs on one axis.

import type { RunStep } from "../../api/types.ts";

export type MeasureKey = "loss" | "grad_norm" | "learning_rate" | "tokens_per_second";
export type Axis = "step" | "time";

export interface Curve {
  readonly x: readonly number[];
  readonly y: readonly (number | null)[];
}

export function measureOf(step: RunStep, key: MeasureKey): number | null {
  const value = key === "tokens_per_second" ? (step.seconds > 0 ? step.tokens / step.seconds : null) : step[key];
  return value === null || value === undefined || !Number.isFinite(value) ? null : value;
}

export function curveOf(steps: readonly RunStep[], key: MeasureKey, axis: Axis): Curve {
  const x: number[] = [];
  const y: (number | null)[] = [];
  for (const step of steps) {
    // Passes before the first optimizer step have no place on an axis of steps.
    if (step.step <= 0) continue;
    x.push(axis === "step" ? step.step : step.time / 1e6);
    y.push(measureOf(step, key));
  }
  return { x, y };
}

/**
 * The exponential moving average with its start corrected: the first value is the first of the input, not a part of it.
 * `weight` 0 changes nothing, 0.9 averages over about ten values. Missing values stay missing.
 */
export function smooth(values: readonly (number | null)[], weight: number): (number | null)[] {
  if (weight <= 0) return [...values];
  let sum = 0;
  let share = 1;
  return values.map((value) => {
    if (value === null) return null;
    sum = sum * weight + (1 - weight) * value;
    share *= weight;
    return sum / (1 - share);
  });
}

/** All curves on the union of their x values. Between two values of a curve its line is followed; outside it is missing. */
export function align(curves: readonly Curve[]): { x: number[]; y: (number | null)[][] } {
  const only = curves[0];
  if (curves.length === 1 && only) return { x: [...only.x], y: [[...only.y]] };
  const x = [...new Set(curves.flatMap((curve) => curve.x))].sort((a, b) => a - b);
  return { x, y: curves.map((curve) => resample(curve, x)) };
}

function resample(curve: Curve, x: readonly number[]): (number | null)[] {
  const known: { x: number; y: number }[] = [];
  curve.x.forEach((at, i) => {
    const y = curve.y[i];
    if (y !== null && y !== undefined) known.push({ x: at, y });
  });
  let next = 0;
  return x.map((at) => {
    while (next < known.length && (known[next] as { x: number }).x < at) ++next;
    const right = known[next];
    if (!right) return null;
    if (right.x === at) return right.y;
    const left = known[next - 1];
    if (!left) return null;
    return left.y + ((right.y - left.y) * (at - left.x)) / (right.x - left.x);
  });
}

/** A logarithmic axis has no place for zero and below. */
export function positive(values: readonly (number | null)[]): (number | null)[] {
  return values.map((value) => (value !== null && value > 0 ? value : null));
}

/**
 * Whether `again`, the steps of a run from the newest known one on, go on from `before`. A run that went back to a
 * checkpoint has another step of that number, or none yet. A later one comes first if the server has thinned it out.
 */
export function goesOn(before: readonly RunStep[], again: readonly RunStep[]): boolean {
  const last = before.at(-1);
  const first = again[0];
  return !last || (first !== undefined && (first.step > last.step || first.time === last.time));
}

/** Adds the newer steps, and halves the density of the older ones when there are too many for a screen. */
export function appendSteps(before: readonly RunStep[], newer: readonly RunStep[], max = 3000): RunStep[] {
  const last = before.at(-1)?.step ?? 0;
  const all = [...before, ...newer.filter((step) => step.step > last)];
  if (all.length <= max) return all;
  const keep = Math.floor(max / 2);
  return [...all.slice(0, -keep).filter((_, i) => i % 2 === 0), ...all.slice(-keep)];
}

export type PartKey = "pass_seconds" | "step_seconds" | "wait_seconds" | "save_seconds" | "idle_seconds";

/** The mean seconds of each part of a step, over groups of steps, so that at most `groups` columns are drawn. */
export function partsOverSteps(
  steps: readonly RunStep[],
  keys: readonly PartKey[],
  groups: number,
): { x: number[]; y: number[][] } {
  const usable = steps.filter((step) => step.step > 0);
  const size = Math.max(1, Math.ceil(usable.length / Math.max(1, groups)));
  const x: number[] = [];
  const y: number[][] = keys.map(() => []);
  for (let from = 0; from < usable.length; from += size) {
    const group = usable.slice(from, from + size);
    x.push(group.at(-1)?.step ?? 0);
    keys.forEach((key, k) => {
      y[k]?.push(group.reduce((sum, step) => sum + (step[key] ?? 0), 0) / group.length);
    });
  }
  return { x, y };
}
