import { describe, expect, it, vi } from "vitest";
import type { MetricInfo } from "../../api/types.ts";

vi.mock("../../ui/chart.tsx", () => ({ Chart: () => null, timesOf: () => [] }));
const { promql } = await import("./explore.tsx");
const { areaOf, searchMetrics } = await import("./catalogue.tsx");

const metric = (name: string, type: MetricInfo["type"], description = ""): MetricInfo => ({
  name,
  prometheus_name: name.replaceAll(".", "_"),
  type,
  unit: "s",
  description,
  labels: {},
});

describe("the catalogue", () => {
  const metrics = [metric("tuft.a.wait", "histogram", "Waiting for a turn"), metric("ttft", "gauge", "Latency")];
  it("is searched by all words, in names and descriptions", () => {
    expect(searchMetrics(metrics, "turn WAIT").map((one) => one.name)).toEqual(["tuft.a.wait"]);
    expect(searchMetrics(metrics, "")).toHaveLength(2);
    expect(searchMetrics(metrics, "turn latency")).toEqual([]);
  });
  it("is ordered by area", () => {
    expect(areaOf("tuft.training.loss")).toBe("tuft.training");
    expect(areaOf("ttft_milliseconds")).toBe("continuous batching");
    expect(areaOf("http.server.request.duration")).toBe("http");
  });
});

describe("promql", () => {
  it("asks for the same", () => {
    expect(promql(metric("a.b", "histogram"), "p95", ["http.route"], { "x.y": "1" })).toBe(
      'histogram_quantile(0.95, sum by (le, http_route) (rate(a_b_bucket{x_y="1"}[$__rate_interval])))',
    );
    expect(promql(metric("c", "counter"), "rate", ["k"], {})).toBe("sum by (k) (rate(c[$__rate_interval]))");
    expect(promql(metric("g", "gauge"), "last", [], {})).toBe("sum (g)");
  });
});
