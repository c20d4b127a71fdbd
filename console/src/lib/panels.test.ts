import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { MetricAnswer } from "../api/types.ts";
import { boards } from "./boards.ts";
import {
  align,
  combine,
  decodePanels,
  decodeWhere,
  divide,
  encodePanels,
  foldSeries,
  functionsOf,
  type Query,
  quantityOf,
  queryParams,
} from "./panels.ts";

const answer = (series: MetricAnswer["series"], start = 0): MetricAnswer => ({
  name: "m",
  unit: "1",
  type: "counter",
  fn: "rate",
  start,
  step: 10e6,
  truncated: false,
  series,
});

describe("quotients", () => {
  it("are nothing where nothing happened", () => expect(divide([0, 1, null], [0, 4, 2])).toEqual([null, 0.25, 0]));
  it("take the other series with the same labels, or the only one", () => {
    const hits = answer([{ labels: { kind: "a" }, points: [1, 2] }]);
    const byKind = answer([
      { labels: { kind: "b" }, points: [1, 1] },
      { labels: { kind: "a" }, points: [4, 4] },
    ]);
    expect(combine({ metric: "m" }, hits, byKind)).toEqual([{ label: "a", points: [0.25, 0.5] }]);
    const total = answer([{ labels: {}, points: [2, 8] }]);
    expect(combine({ metric: "m" }, hits, total)[0]!.points).toEqual([0.5, 0.25]);
  });
  it("match points by time", () => {
    const hits = answer([{ labels: {}, points: [1, 2] }], 10e6);
    const total = answer([{ labels: {}, points: [9, 2, 4] }]);
    expect(combine({ metric: "m", label: "x" }, hits, total)).toEqual([{ label: "x", points: [0.5, 0.5] }]);
  });
});

describe("folding", () => {
  const series = [
    { labels: { gpu_id: "0", worker: "" }, points: [0.2, null] },
    { labels: { gpu_id: "0", worker: "m" }, points: [0.4, null] },
    { labels: { gpu_id: "1", worker: "m" }, points: [0.9, 1] },
  ];
  it("joins series that differ in the folded label only", () => {
    const query = { metric: "m", by: ["gpu_id"], fold: { over: ["worker"], by: "max" as const } };
    expect(foldSeries(query, series)).toEqual([
      { labels: { gpu_id: "0" }, points: [0.4, null] },
      { labels: { gpu_id: "1" }, points: [0.9, 1] },
    ]);
    expect(queryParams(query, { from: "-1h", until: "", step: 1 }).by).toBe("gpu_id,worker");
  });
  it("takes the mean of those that are known", () => {
    const query = { metric: "m", fold: { over: ["gpu_id", "worker"], by: "mean" as const } };
    expect(foldSeries(query, series)[0]!.points).toEqual([0.5, 1]);
  });
  it("calls the process without a worker the server", () =>
    expect(combine({ metric: "m" }, answer([{ labels: { worker: "" }, points: [] }]))[0]!.label).toBe("server"));
});

describe("align", () => {
  it("puts series on one axis", () => {
    const aligned = align([
      { start: 10e6, step: 10e6, series: [{ label: "a", points: [1, 2] }] },
      { start: 20e6, step: 10e6, series: [{ label: "b", points: [3, 4] }] },
    ]);
    expect(aligned.x).toEqual([10, 20, 30]);
    expect(aligned.series.map((one) => one.points)).toEqual([
      [1, 2, null],
      [null, 3, 4],
    ]);
  });
  it("has no axis without series", () =>
    expect(align([{ start: 0, step: 1, series: [] }])).toEqual({ x: [], series: [] }));
});

describe("panels in addresses", () => {
  it("come back as they were", () => {
    const panels = [
      {
        id: "mine-0",
        title: "My panel",
        kind: "stack" as const,
        queries: [{ metric: "a.b", fn: "p95" as const, by: ["x", "y"], where: { k: "v:w" } }],
      },
    ];
    expect(decodePanels(encodePanels(panels))).toEqual(panels);
  });
  it.each(["", "{", "null", "[1]", '[["t","line",[[1]]]]', '[["t","line",[]]]'])("ignores %j", (text) =>
    expect(decodePanels(text)).toEqual([]),
  );
  it("reads conditions with colons in their values", () =>
    expect(decodeWhere("model:a:b,x:1")).toEqual({ model: "a:b", x: "1" }));
});

describe("the boards", () => {
  const page = readFileSync(new URL("../../../docs/telemetry.md", import.meta.url), "utf8");
  const rows = new Map<string, { type: string; unit: string; labels: string; process: string }>();
  for (const line of page.split("\n")) {
    const cells = line.split("|").map((cell) => cell.trim());
    const name = /^`([^`]+)`<br>/.exec(cells[1] ?? "")?.[1];
    if (name) rows.set(name, { type: cells[2]!, unit: cells[3]!, labels: cells[4]!, process: cells[5]! });
  }
  const queries = boards.flatMap((board) =>
    board.panels.flatMap((panel) => panel.queries.flatMap((query) => [query, ...(query.over ? [query.over] : [])])),
  );
  it("ask for metrics, labels and functions that the catalogue has", () => {
    for (const query of queries) {
      const row = rows.get(query.metric);
      expect(row, query.metric).toBeDefined();
      for (const label of [
        ...(query.by ?? []),
        ...((query as Query).fold?.over ?? []),
        ...Object.keys(query.where ?? {}),
      ])
        if (label !== "worker") expect(row!.labels, query.metric).toContain(`\`${label}\``);
      const type = /Histogram/.test(row!.type) ? "histogram" : /UpDown|Gauge/.test(row!.type) ? "gauge" : "counter";
      if (query.fn) expect(functionsOf(type), query.metric).toContain(query.fn);
    }
  });
  it("do not add up the shares of several workers", () => {
    const shares = queries.filter((query) => {
      const row = rows.get(query.metric)!;
      return row.process === "worker" && /Gauge/.test(row.type) && ["1", "ratio"].includes(row.unit);
    });
    expect(shares.map((query) => query.metric)).toContain("tuft.worker.busy");
    for (const query of shares)
      expect([...(query.by ?? []), ...((query as Query).fold?.over ?? [])], query.metric).toContain("worker");
  });
  it("have ids of their own", () => {
    const ids = boards.flatMap((board) => board.panels.map((panel) => panel.id));
    expect(new Set(ids).size).toBe(ids.length);
  });
});

describe("quantityOf", () => {
  it("knows that the rate of a histogram counts", () => {
    expect(quantityOf("s", "histogram", "rate")).toEqual({ unit: "", perSecond: true });
    expect(quantityOf("s", "histogram", "p95").unit).toBe("s");
    expect(quantityOf("By", "counter", "rate")).toEqual({ unit: "By", perSecond: true });
  });
});
