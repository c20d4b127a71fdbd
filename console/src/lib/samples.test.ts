import { describe, expect, it } from "vitest";
import { parseSample, Samples } from "./samples.ts";

describe("samples", () => {
  it("are read with their labels", () => {
    expect(parseSample('a.b{base_model="Qwen/Q",state="used"}', 3)).toEqual({
      name: "a.b",
      labels: { base_model: "Qwen/Q", state: "used" },
      value: 3,
    });
    expect(parseSample("a.b{state=used}", 3).labels).toEqual({ state: "used" });
    expect(parseSample("a.b", 1)).toEqual({ name: "a.b", labels: {}, value: 1 });
  });
  it("are found under both spellings of a name", () => {
    const samples = new Samples({
      'tuft_lora_memory_bytes{part="weights"}': 2,
      'tuft_lora_memory_bytes{part="optimizer"}': 3,
      tuft_lora_memory_other: 9,
    });
    expect(samples.sum("tuft.lora.memory")).toBe(5);
    expect(samples.sum("tuft.lora.memory", { part: "weights" })).toBe(2);
    expect(samples.sum("tuft.none")).toBeNull();
  });
});
