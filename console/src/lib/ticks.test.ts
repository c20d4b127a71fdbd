import { describe, expect, it } from "vitest";
import { logTick } from "./ticks.ts";

describe("the marks of a logarithmic axis", () => {
  it("are named at 1, 2 and 5", () => {
    expect([0.01, 0.02, 0.03, 0.05, 0.1].map(logTick)).toEqual(["0.01", "0.02", "", "0.05", "0.1"]);
  });
  it("have no name where there is no mark", () => {
    expect(logTick(null)).toBe("");
  });
});
