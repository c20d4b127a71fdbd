import { describe, expect, it } from "vitest";
import { barHeight, bucketsOf, intervalOf, isInside } from "./durations.ts";

const answer = { bounds: [10, 100, 1000, 10_000], counts: [0, 0, 4, 1, 0], failed: [0, 0, 1, 0, 0] };

describe("the histogram of durations", () => {
  it("shows what holds something, with a margin", () => {
    expect(bucketsOf(answer)).toEqual([
      { from: 10, to: 100, count: 0, failed: 0 },
      { from: 100, to: 1000, count: 4, failed: 1 },
      { from: 1000, to: 10_000, count: 1, failed: 0 },
      { from: 10_000, to: null, count: 0, failed: 0 },
    ]);
    expect(bucketsOf({ bounds: [10], counts: [0, 0], failed: [0, 0] })).toEqual([]);
    expect(bucketsOf({ bounds: [10], counts: [3, 0], failed: [0, 0] })[0]).toMatchObject({ from: 0, to: 10 });
  });

  it("filters by an interval in either direction, without bounds at the open ends", () => {
    const buckets = bucketsOf(answer);
    expect(intervalOf(buckets, 1, 2)).toEqual({ min: 100, max: 10_000 });
    expect(intervalOf(buckets, 2, 1)).toEqual({ min: 100, max: 10_000 });
    expect(intervalOf(buckets, 3, 3)).toEqual({ min: 10_000, max: null });
  });

  it("knows which bars a filter lets through", () => {
    const [first, second, third] = bucketsOf(answer);
    if (!first || !second || !third) throw new Error("no buckets");
    expect([first, second, third].map((bucket) => isInside(bucket, 100, 1000))).toEqual([false, true, false]);
    expect([first, second, third].every((bucket) => isInside(bucket, null, null))).toBe(true);
  });

  it("keeps one slow request visible", () => {
    expect(barHeight(1, 100_000)).toBeGreaterThan(3);
    expect(barHeight(100, 100)).toBe(100);
    expect(barHeight(0, 100)).toBe(0);
  });
});
