import { describe, expect, it } from "vitest";
import type { RunStep } from "../../api/types.ts";
import { align, appendSteps, curveOf, goesOn, measureOf, partsOverSteps, positive, smooth } from "./curves.ts";

const step = (number: number, more: Partial<RunStep> = {}): RunStep => ({
  step: number,
  time: number * 1e6,
  loss: 1 / number,
  grad_norm: 1,
  learning_rate: 1e-4,
  tokens: 100,
  seconds: 2,
  pass_seconds: 1,
  step_seconds: 0.25,
  wait_seconds: 0.25,
  save_seconds: 0,
  idle_seconds: 0.5,
  clipped: false,
  ...more,
});

describe("curves", () => {
  it("have tokens per second, and nothing for unknown values", () => {
    expect(measureOf(step(1), "tokens_per_second")).toBe(50);
    expect(measureOf(step(1, { seconds: 0 }), "tokens_per_second")).toBeNull();
    expect(measureOf(step(1, { loss: null }), "loss")).toBeNull();
    expect(measureOf(step(1, { loss: Number.NaN }), "loss")).toBeNull();
  });

  it("leave out passes before the first step", () => {
    expect(curveOf([step(0, { loss: 9 }), step(1), step(2)], "loss", "step")).toEqual({ x: [1, 2], y: [1, 0.5] });
    expect(curveOf([step(3)], "loss", "time").x).toEqual([3]);
  });

  it("are smoothed without a pull towards zero at the start", () => {
    expect(smooth([4, 4, 4], 0.9)).toEqual([4, 4, 4].map((value) => expect.closeTo(value)));
    expect(smooth([0, 10], 0.5)[1]).toBeCloseTo(6.667, 2);
    expect(smooth([1, null, 3], 0.5)[1]).toBeNull();
    expect(smooth([1, 2], 0)).toEqual([1, 2]);
  });

  it("are put on one axis without inventing values outside of them", () => {
    const { x, y } = align([
      { x: [1, 3, 5], y: [10, 30, 50] },
      { x: [2, 3, 4], y: [1, null, 3] },
    ]);
    expect(x).toEqual([1, 2, 3, 4, 5]);
    expect(y[0]).toEqual([10, 20, 30, 40, 50]);
    expect(y[1]).toEqual([null, 1, 2, 3, null]);
  });

  it("have no zero on a logarithmic axis", () => expect(positive([0, -1, 2, null])).toEqual([null, null, 2, null]));
});

describe("live steps", () => {
  it("are added once", () => {
    const steps = appendSteps([step(1), step(2)], [step(2), step(3)]);
    expect(steps.map((one) => one.step)).toEqual([1, 2, 3]);
  });

  it("go on from the newest known step while the run still has it", () => {
    const before = [step(1), step(2)];
    expect(goesOn([], [])).toBe(true);
    expect(goesOn([], [step(1)])).toBe(true);
    expect(goesOn(before, [step(2)])).toBe(true);
    expect(goesOn(before, [step(2), step(3)])).toBe(true);
    // The server has thinned it out.
    expect(goesOn(before, [step(3)])).toBe(true);
  });

  it("are read anew when the run went back to a checkpoint", () => {
    const before = [step(1), step(2)];
    expect(goesOn(before, [])).toBe(false);
    expect(goesOn(before, [step(2, { time: 9e6 }), step(3, { time: 10e6 })])).toBe(false);
  });

  it("stay bounded, and keep the first and the newest", () => {
    let steps: RunStep[] = [];
    for (let n = 0; n < 50; ++n)
      steps = appendSteps(
        steps,
        Array.from({ length: 100 }, (_, i) => step(n * 100 + i + 1)),
        1000,
      );
    expect(steps.length).toBeLessThanOrEqual(1000);
    expect(steps[0]?.step).toBe(1);
    expect(steps.at(-1)?.step).toBe(5000);
  });
});

describe("the parts of a step's time", () => {
  it("are means over groups", () => {
    const steps = Array.from({ length: 10 }, (_, i) => step(i + 1, { pass_seconds: i }));
    const { x, y } = partsOverSteps(steps, ["pass_seconds", "idle_seconds"], 5);
    expect(x).toEqual([2, 4, 6, 8, 10]);
    expect(y[0]).toEqual([0.5, 2.5, 4.5, 6.5, 8.5]);
    expect(y[1]).toEqual([0.5, 0.5, 0.5, 0.5, 0.5]);
    expect(partsOverSteps([], ["pass_seconds"], 5).x).toEqual([]);
  });
});
