import { expect, it } from "vitest";
import { checkpointPath, shortRun } from "./words.ts";

it("a run is called by the beginning of its session and its number", () => {
  expect(shortRun("89263ddb-af9b-4f73-a9cd-387824772020:train:0")).toBe("89263ddb:train:0");
  expect(shortRun("short")).toBe("short");
  expect(shortRun("x".repeat(40))).toBe(`${"x".repeat(22)}…`);
});

it("the path of a checkpoint keeps the colons of its run and escapes everything else", () => {
  expect(checkpointPath("a:train:0", "sampler_weights/final")).toBe(
    "/api/v1/training_runs/a:train:0/checkpoints/sampler_weights/final",
  );
  expect(checkpointPath("a/b", "weights/x y")).toBe("/api/v1/training_runs/a%2Fb/checkpoints/weights/x%20y");
});
