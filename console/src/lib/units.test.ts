import { describe, expect, it } from "vitest";
import {
  formatBytes,
  formatCount,
  formatDuration,
  formatNumber,
  formatQuantity,
  formatShare,
  formatTick,
  scaleOf,
  unitWord,
} from "./units.ts";

describe("formatDuration", () => {
  it.each([
    [null, "–"],
    [0, "0 s"],
    [0.25, "250 ns"],
    [850, "850 µs"],
    [999.6, "1 ms"],
    [12_345, "12.3 ms"],
    [999_600, "1 s"],
    [1_240_000, "1.24 s"],
    [59_960_000, "1 min"],
    [125e6, "2 min 5 s"],
    [3600e6, "1 h"],
    [3599.7e6, "1 h"],
    [11_520e6, "3 h 12 min"],
    [2 * 86400e6 + 4 * 3600e6, "2 d 4 h"],
    [-1500, "−1.5 ms"],
  ])("%s µs is %s", (micros, text) => expect(formatDuration(micros)).toBe(text));
});

describe("numbers", () => {
  it.each([
    [0, "0"],
    [0.000012, "1.20e−5"],
    [0.1234, "0.123"],
    [12.345, "12.3"],
    [1234567, "1,234,567"],
    [-3.5, "−3.5"],
  ])("formatNumber(%s) is %s", (value, text) => expect(formatNumber(value)).toBe(text));
  it.each([
    [999, "999"],
    [999.6, "1 k"],
    [1_234_567, "1.23 M"],
    [999_999, "1 M"],
    [2e12, "2 T"],
  ])("formatCount(%s) is %s", (value, text) => expect(formatCount(value)).toBe(text));
  it.each([
    [0, "0 B"],
    [1023, "1023 B"],
    [1024, "1 KiB"],
    [1536, "1.5 KiB"],
    [1024 ** 3 - 1, "1 GiB"],
  ])("formatBytes(%s) is %s", (value, text) => expect(formatBytes(value)).toBe(text));
  it.each([
    [0, "0 %"],
    [0.1234, "12.3 %"],
    [0.9996, "100 %"],
    [0.0004, "< 0.1 %"],
  ])("formatShare(%s) is %s", (value, text) => expect(formatShare(value)).toBe(text));
});

describe("formatQuantity", () => {
  it.each([
    [0.25, { unit: "s" }, "250 ms"],
    [250, { unit: "ms" }, "250 ms"],
    [2048, { unit: "By", perSecond: true }, "2 KiB/s"],
    [0.5, { unit: "1" }, "50 %"],
    [1.3, { unit: "1", plain: true }, "1.3"],
    [42, { unit: "percent" }, "42 %"],
    [4300, { unit: "{token}", perSecond: true }, "4.3 k tokens/s"],
    [4300, { unit: "tokens/s" }, "4.3 k tokens/s"],
    [3, { unit: "{request}" }, "3 requests"],
    [2e12, { unit: "{flop}", perSecond: true }, "2 TFLOP/s"],
    [5, { unit: "", perSecond: true }, "5/s"],
    [61, { unit: "Cel" }, "61 °C"],
    [null, { unit: "s" }, "–"],
  ])("%s %o is %s", (value, quantity, text) => expect(formatQuantity(value, quantity)).toBe(text));
  it("makes plurals", () => {
    expect(unitWord("{query}")).toBe("queries");
    expect(unitWord("{pass}")).toBe("passes");
    expect(unitWord("{context_switch}")).toBe("context switches");
  });
});

describe("axes", () => {
  it("share one prefix and have as many decimals as their distance needs", () => {
    const scale = scaleOf(0.4, { unit: "s" });
    expect([0, 0.1, 0.2].map((tick) => formatTick(tick, scale, 0.1))).toEqual(["0", "100 ms", "200 ms"]);
    const bytes = scaleOf(3 * 1024 ** 3, { unit: "By" });
    expect(formatTick(1.5 * 1024 ** 3, bytes, 0.5 * 1024 ** 3)).toBe("1.5 GiB");
    expect(formatTick(0.005, { factor: 1, suffix: "" }, 0.005)).toBe("0.005");
  });
  it("say exactly where a tick is", () => {
    const plain = { factor: 1, suffix: "" };
    expect([2.5, 5, 7.5].map((tick) => formatTick(tick, plain, 2.5))).toEqual(["2.5", "5.0", "7.5"]);
    expect([0.25, 0.5, 0.75].map((tick) => formatTick(tick, plain, 0.25))).toEqual(["0.25", "0.50", "0.75"]);
  });
  it("never give neighbours the same label", () => {
    for (const distance of [1e-3, 2e-3, 5e-3, 0.1, 0.25, 0.5, 20]) {
      const ticks = Array.from({ length: 5 }, (_, i) => i * distance);
      const scale = scaleOf(ticks.at(-1)!, { unit: "{token}" });
      expect(new Set(ticks.map((tick) => formatTick(tick, scale, distance))).size).toBe(5);
    }
  });
});
