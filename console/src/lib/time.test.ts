import { describe, expect, it } from "vitest";
import { durationTicks, niceTicks } from "./ticks.ts";
import {
  formatAbsolute,
  formatRelative,
  fromInputTime,
  isRelative,
  parseRelative,
  resolveRange,
  stepFor,
  toInputTime,
} from "./time.ts";

const now = 1_800_000_000e6;

describe("ranges", () => {
  it("reads relative times", () => {
    expect(parseRelative("-15m")).toBe(900e6);
    expect(parseRelative("-2d")).toBe(2 * 86400e6);
    expect(parseRelative("15m")).toBeNull();
    expect(parseRelative("-m")).toBeNull();
  });
  it("resolves them against now", () => {
    expect(resolveRange({ from: "-1h", until: "" }, now)).toEqual({ from: now - 3600e6, until: now });
    expect(resolveRange({ from: "5", until: "9" }, now)).toEqual({ from: 5, until: 9 });
  });
  it("survives nonsense in an address", () => {
    expect(resolveRange({ from: "x", until: "y" }, now)).toEqual({ from: now - 3600e6, until: now });
    expect(resolveRange({ from: "9", until: "5" }, now)).toEqual({ from: 5, until: 9 });
  });
  it("knows which ranges move", () => {
    expect(isRelative({ from: "-1h", until: "" })).toBe(true);
    expect(isRelative({ from: "5", until: "9" })).toBe(false);
  });
  it("chooses steps that make no more points than asked for", () => {
    for (const width of [60e6, 3600e6, 86400e6])
      expect(width / stepFor({ from: now - width, until: now }, 120)).toBeLessThanOrEqual(120);
  });
});

describe("texts", () => {
  it.each([
    [0, "just now"],
    [12e6, "12 s ago"],
    [59.7e6, "1 min ago"],
    [3 * 60e6, "3 min ago"],
    [5 * 3600e6, "5 h ago"],
    [3 * 86400e6, "3 d ago"],
    [-3 * 86400e6, "in 3 d"],
  ])("%s µs ago", (ago, text) => expect(formatRelative(now - ago, now)).toBe(text));
  it("says the zone of absolute times", () =>
    expect(formatAbsolute(now)).toMatch(/^2027-01-1\d \d\d:\d\d:\d\d\.000 UTC/));
  it("survives the way through a field", () => expect(fromInputTime(toInputTime(now))).toBe(now));
});

describe("ticks", () => {
  it("are round and within the bounds", () => {
    expect(niceTicks(0, 10, 5)).toEqual([0, 2, 4, 6, 8, 10]);
    expect(niceTicks(3, 47, 5)).toEqual([10, 20, 30, 40]);
    expect(niceTicks(5, 5, 5)).toEqual([]);
  });
  it("follow the clock above a second", () => {
    expect(durationTicks(0, 120e6, 4)).toEqual([0, 30e6, 60e6, 90e6, 120e6]);
    expect(durationTicks(0, 3600e6, 4)).toEqual([0, 900e6, 1800e6, 2700e6, 3600e6]);
    expect(durationTicks(0, 1000, 5)).toEqual([0, 200, 400, 600, 800, 1000]);
  });
});
