import { describe, expect, it } from "vitest";
import { formatZoom, parseZoom } from "./viewport.ts";

describe("the zoom in an address", () => {
  it("is read as it was written", () => {
    expect(parseZoom(formatZoom({ from: 12.3456, to: 400.5 }))).toEqual({ from: 12.346, to: 400.5 });
    expect(parseZoom(formatZoom({ from: 1000, to: 5_000_000.4 }))).toEqual({ from: 1000, to: 5_000_000 });
  });
  it("is ignored if it is none", () => {
    for (const text of ["", "5", "9-3", "a-b", "1-2-3", "-5-9"]) expect(parseZoom(text)).toBeNull();
  });
});
