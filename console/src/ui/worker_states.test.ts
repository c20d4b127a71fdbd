import { expect, it } from "vitest";
import { serves } from "./worker_states.ts";

it("a base model finds all its workers", () => {
  for (const worker of ["org/m", "org/m#1", "org/m#12"]) expect(serves(worker, "org/m"), worker).toBe(true);
  for (const worker of ["org/m2#1", "org/m#1#2", "org/m#", "m#1"]) expect(serves(worker, "org/m"), worker).toBe(false);
  expect(serves("org/m#1", "")).toBe(false);
});
