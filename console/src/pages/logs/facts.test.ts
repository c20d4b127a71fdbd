import { expect, test } from "vitest";
import { facts } from "./facts.ts";

test("an id is shown by its beginning, and a name without its area", () => {
  expect(
    facts({
      "tuft.training_run_id": "c04283c1-042a-4f96-b717-fe79b5052fcc:train:0",
      "tuft.optim_steps": 3,
      "http.route": "/api/v1/asample",
    }),
  ).toBe("training_run=c04283c1…:train:0  optim_steps=3  http.route=/api/v1/asample");
});

test("long values and further attributes are left to the detail", () => {
  const many = Object.fromEntries(Array.from({ length: 20 }, (_, i) => [`k${i}`, "x".repeat(100)]));
  const text = facts(many);
  expect(text.split("  ")).toHaveLength(8);
  expect(text.length).toBeLessThan(8 * 32);
});

test("the event and the place in the program are left out", () => {
  expect(facts({ "event.name": "run.created", "code.file.path": "/a/b.cc", "code.line.number": 7 })).toBe("");
});
