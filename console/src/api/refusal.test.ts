import { describe, expect, it } from "vitest";
import { asksAgain } from "./refusal.ts";

describe("what failed", () => {
  it("is asked for again while the server is away or busy", () => {
    for (const status of [0, 429, 500, 503]) expect(asksAgain(status, false)).toBe(true);
  });
  it("is not asked for again when it was refused from the start", () => {
    for (const status of [400, 403, 404]) expect(asksAgain(status, false)).toBe(false);
  });
  it("is asked for again when it was answered before", () => {
    for (const status of [0, 400, 503]) expect(asksAgain(status, true)).toBe(true);
  });
  it("is not asked for again when it is gone", () => {
    for (const status of [403, 404]) expect(asksAgain(status, true)).toBe(false);
  });
});
