import { describe, expect, it } from "vitest";
import { compareTraces, largestDifference } from "./compare.ts";
import { nextCritical, readCriticalPath } from "./critical.ts";
import { levelRank, logsBySpan } from "./marks.ts";
import { colourSpans, hashText, inkOn, plainName, WORK_KINDS, workColour, workKind } from "./palette.ts";
import { makeSpan } from "./sample.ts";
import { nextMatch, searchSpans } from "./search.ts";
import { roundStep, timeTicks } from "./ticks.ts";
import { buildTree } from "./tree.ts";
import { bringIntoView, clampViewport, fitSpan, isWhole, panViewport, zoomViewport } from "./viewport.ts";

const T0 = 1_790_000_000_000_000;

describe("the viewport", () => {
  it("stays in the trace and keeps its length", () => {
    expect(clampViewport({ from: -10, to: 20 }, 100)).toEqual({ from: 0, to: 30 });
    expect(clampViewport({ from: 90, to: 120 }, 100)).toEqual({ from: 70, to: 100 });
    expect(clampViewport({ from: -50, to: 500 }, 100)).toEqual({ from: 0, to: 100 });
    expect(panViewport({ from: 10, to: 20 }, -30, 100)).toEqual({ from: 0, to: 10 });
  });

  it("zooms around a moment, which stays where it is on the screen", () => {
    const zoomed = zoomViewport({ from: 0, to: 100 }, 0.5, 25, 100);
    expect(zoomed).toEqual({ from: 12.5, to: 62.5 });
    expect((25 - zoomed.from) / (zoomed.to - zoomed.from)).toBeCloseTo(0.25);
    expect(zoomViewport({ from: 5, to: 5.6 }, 0.1, 5, 100)).toEqual({ from: 5, to: 5.6 });
    expect(isWhole(zoomViewport(zoomed, 100, 30, 100), 100)).toBe(true);
  });

  it("fits a span and moves to one outside", () => {
    const fitted = fitSpan(40, 60, 100);
    expect(fitted.from).toBe(39);
    expect(fitted.to).toBe(61);
    const view = { from: 0, to: 10 };
    expect(bringIntoView(view, 5, 6, 100)).toBe(view);
    expect(bringIntoView(view, 50, 52, 100)).toEqual({ from: 46, to: 56 });
  });
});

describe("ticks", () => {
  it("are round and have one unit", () => {
    expect(timeTicks(0, 1000, 900, 90).map((tick) => tick.label)).toContain("0.5 ms");
    expect(timeTicks(0, 2_500_000, 900, 90).map((tick) => tick.label)).toEqual(
      expect.arrayContaining(["0", "0.5 s", "2.5 s"]),
    );
    expect(timeTicks(1_000_000, 1_000_100, 900, 90)[0]?.label).toBe("1.00000 s");
    expect(timeTicks(5, 5, 900)).toEqual([]);
    expect(roundStep(0.3)).toBe(0.5);
    expect(roundStep(7)).toBe(10);
    expect(roundStep(Number.NaN)).toBe(1);
  });

  it("keep their distance", () => {
    for (const width of [300, 777, 1600]) {
      const ticks = timeTicks(12.3, 9876.5, width, 90);
      for (let k = 1; k < ticks.length; ++k) {
        const gap = (((ticks[k]?.time ?? 0) - (ticks[k - 1]?.time ?? 0)) / (9876.5 - 12.3)) * width;
        expect(gap).toBeGreaterThanOrEqual(89.9);
      }
    }
  });
});

describe("colours", () => {
  it("tell the kind of work by the names that the server uses", () => {
    const kinds: [string, string][] = [
      ["SCHEDULE", "queue"],
      ["PREFILL", "prefill"],
      ["DECODE", "decode"],
      ["engine.forward", "forward"],
      ["engine.backward", "backward"],
      ["hf_model.optim_step", "optimizer"],
      ["hf_model.save_state", "save"],
      ["redis.SET", "store"],
      ["POST /api/v1/forward_backward", "server"],
      ["future_store.execute_operation", "server"],
      ["training_controller.run_optim_step", "server"],
    ];
    for (const [name, kind] of kinds) expect(workKind({ name, kind: "internal", service: "tuft" }), name).toBe(kind);
    expect(workKind({ name: "epoch", kind: "internal", service: "my-trainer" })).toBe("client");
  });

  it("depend on nothing but the text", () => {
    expect(hashText("tuft")).toBe(hashText("tuft"));
    const spans = [makeSpan("a", null, 0, 1), makeSpan("b", null, 0, 1, { service: "tuft" })];
    const colours = colourSpans(spans, "service", "dark");
    expect(colours[0]).toBe(colours[1]);
  });

  it("differ from each other, and ink is read on all of them", () => {
    for (const theme of ["light", "dark"] as const) {
      const colours = WORK_KINDS.map((kind) => workColour(kind, theme));
      expect(new Set(colours).size).toBe(colours.length);
      for (const colour of colours) expect(["#0b0f14", "#ffffff"]).toContain(inkOn(colour));
    }
    expect(inkOn("#ffffff")).toBe("#0b0f14");
    expect(inkOn("#000000")).toBe("#ffffff");
  });

  it("ignore what differs between processes", () => {
    expect(plainName("http(host:db8e | pid:411)")).toBe("http(…)");
    expect(plainName("sample Req 77a")).toBe("sample Req …");
    expect(plainName("hf_model.sample")).toBe("hf_model.sample");
  });
});

describe("search", () => {
  const tree = buildTree([
    makeSpan("1", null, T0, 100, { name: "POST /api/v1/asample", attributes: { "tuft.tokens": 12 } }),
    makeSpan("2", "1", T0 + 1, 10, { name: "redis.SET", failed: true, status_message: "connection lost" }),
    makeSpan("3", "1", T0 + 20, 10, { name: "redis.GET", attributes: { "tuft.run": "ABC" } }),
  ]);
  it("asks nothing with an empty text", () => expect(searchSpans(tree, "  ")).toBeNull());
  it("needs all words, without case", () => {
    expect(searchSpans(tree, "REDIS get")?.count).toBe(1);
    expect(searchSpans(tree, "redis")?.count).toBe(2);
    expect(searchSpans(tree, "connection")?.count).toBe(1);
    expect(searchSpans(tree, "failed")?.count).toBe(1);
    expect(searchSpans(tree, "run=abc")?.count).toBe(1);
    expect(searchSpans(tree, "tokens=13")?.count).toBe(0);
  });
  it("goes around", () => {
    const matches = searchSpans(tree, "redis");
    if (!matches) throw new Error("no matches");
    expect(nextMatch(tree, matches, -1, 1)).toBe(1);
    expect(nextMatch(tree, matches, 1, 1)).toBe(2);
    expect(nextMatch(tree, matches, 2, 1)).toBe(1);
    expect(nextMatch(tree, matches, 1, -1)).toBe(2);
    expect(nextMatch(tree, { matched: new Uint8Array(3), count: 0 }, 1, 1)).toBe(-1);
  });
});

describe("the critical path", () => {
  const tree = buildTree([
    makeSpan("root", null, T0, 100),
    makeSpan("a", "root", T0 + 10, 30),
    makeSpan("b", "root", T0 + 50, 50),
    makeSpan("off", "root", T0 + 12, 3),
  ]);
  const path = readCriticalPath(tree, [
    { span_id: "root", start: T0, duration: 10 },
    { span_id: "a", start: T0 + 10, duration: 30 },
    { span_id: "root", start: T0 + 40, duration: 10 },
    { span_id: "b", start: T0 + 50, duration: 50 },
    { span_id: "unknown", start: T0, duration: 1 },
  ]);
  it("knows its spans and what they are responsible for", () => {
    expect(path.total).toBe(100);
    expect(path.share.get(0)).toBe(20);
    expect(path.onPath[3]).toBe(0);
    expect(path.piecesOf(1)).toEqual([{ span: 1, from: 10, to: 40 }]);
    expect(path.piecesOf(3)).toEqual([]);
  });
  it("is walked forwards and backwards", () => {
    expect(nextCritical(tree, path, -1, 1)).toBe(0);
    expect(nextCritical(tree, path, 1, 1)).toBe(0);
    expect(nextCritical(tree, path, 1, -1)).toBe(0);
    expect(nextCritical(tree, path, 2, 1)).toBe(2);
    expect(nextCritical(tree, path, 3, 1)).toBe(1);
    expect(nextCritical(tree, readCriticalPath(tree, []), 3, 1)).toBe(-1);
  });
});

describe("a comparison of two traces", () => {
  it("adds up each path of names and finds what differs most", () => {
    const a = buildTree([
      makeSpan("r", null, T0, 100, { name: "sample" }),
      makeSpan("x", "r", T0, 20, { name: "PREFILL" }),
      makeSpan("y", "r", T0 + 20, 60, { name: "DECODE" }),
    ]);
    const b = buildTree([
      makeSpan("r", null, T0, 300, { name: "sample" }),
      makeSpan("w", "r", T0, 10, { name: "adapter.page_in" }),
      makeSpan("x", "r", T0 + 10, 20, { name: "PREFILL" }),
      makeSpan("y", "r", T0 + 30, 120, { name: "DECODE" }),
      makeSpan("z", "r", T0 + 150, 100, { name: "DECODE" }),
    ]);
    const rows = compareTraces(a, b);
    expect(rows.map((row) => row.path)).toEqual([
      "/sample",
      "/sample/PREFILL",
      "/sample/adapter.page_in",
      "/sample/DECODE",
    ]);
    const decode = rows[3];
    expect(decode?.a.count).toBe(1);
    expect(decode?.b.count).toBe(2);
    expect(decode?.totalDifference).toBe(160);
    expect(decode?.b.longest).toBe(3);
    expect(rows[2]?.a.count).toBe(0);
    expect(largestDifference(rows)?.path).toBe("/sample/DECODE");
    expect(largestDifference(compareTraces(a, a))).toBeNull();
  });
});

describe("a comparison of two kinds of requests", () => {
  it("compares their only roots although the names differ", () => {
    const a = buildTree([
      makeSpan("r", null, T0, 100, { name: "save" }),
      makeSpan("x", "r", T0, 20, { name: "store" }),
    ]);
    const b = buildTree([makeSpan("r", null, T0, 50, { name: "load" }), makeSpan("x", "r", T0, 30, { name: "store" })]);
    expect(compareTraces(a, b).map((row) => [row.name, row.totalDifference])).toEqual([
      ["save | load", -50],
      ["store", 10],
    ]);
  });
});

describe("logs in a trace", () => {
  it("stand at their spans in the order of time", () => {
    const tree = buildTree([makeSpan("a", null, T0, 10)]);
    const log = (time: number, span_id: string | null) => ({ time, level: "info", event: "", body: "", span_id });
    const found = logsBySpan(tree, [log(T0 + 5, "a"), log(T0 + 1, "a"), log(T0, "b"), log(T0, null)]);
    expect(found.get(0)).toEqual([1, 0]);
    expect(found.size).toBe(1);
    expect(levelRank("ERROR")).toBeGreaterThan(levelRank("warning"));
  });
});
