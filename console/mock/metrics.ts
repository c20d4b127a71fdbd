// The catalogue of docs/telemetry.md with made-up values.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { Random, seedOf, wave } from "./random.ts";
import { findTraces } from "./traces.ts";
import { models, now, started, users, workers } from "./world.ts";

interface Metric {
  name: string;
  prometheus_name: string;
  type: string;
  unit: string;
  description: string;
  labels: Record<string, string[]>;
}

const labelValues: Record<string, string[]> = {
  base_model: models,
  operation_type: ["forward_backward", "optim_step", "sample", "save_weights"],
  status: ["ok", "failed"],
  phase: ["train", "prefill", "decode"],
  kind: ["training", "sampling"],
  state: ["used", "cached", "free"],
  tenant: users,
  "http.route": ["/api/v1/asample", "/api/v1/forward_backward", "/api/v1/retrieve_future"],
  "http.response.status_code": ["200", "408", "429"],
  "http.request.method": ["GET", "POST"],
  queue_state: ["active", "paused_capacity"],
  signal: ["traces", "metrics", "logs"],
  gpu_id: ["0"],
  "hw.name": ["NVIDIA H100 80GB HBM3"],
  "hw.id": ["GPU-0"],
  error_category: ["user", "server"],
  reason: ["overloaded", "rate_limit"],
  "cpu.mode": ["user", "system"],
  direction: ["read", "write"],
};
const special: Record<string, Record<string, string[]>> = {
  "tuft.dispatch.waiting": { kind: ["training", "sampling"] },
  "tuft.sampling.tokens": { kind: ["prefill", "decode"] },
  "tuft.training.tokens": { kind: ["forward", "forward_backward"] },
  "tuft.tenant.tokens": { kind: ["train", "input", "output"] },
  "tuft.scheduler.samples": { state: ["pending", "prefilling", "decoding"] },
  "tuft.scheduler.requests": { state: ["running", "waiting"] },
  "tuft.lora.adapters": { kind: ["training", "sampler"] },
};
const kinds: Record<string, string> = {
  Counter: "counter",
  ObservableCounter: "counter",
  UpDownCounter: "updowncounter",
  Gauge: "gauge",
  ObservableGauge: "gauge",
};

function readCatalogue(): Metric[] {
  const page = readFileSync(fileURLToPath(new URL("../../docs/telemetry.md", import.meta.url)), "utf8");
  const rows = page.slice(page.indexOf("<!-- instruments: begin -->"), page.indexOf("<!-- instruments: end -->"));
  const found: Metric[] = [];
  for (const line of rows.split("\n")) {
    const cells = line.split("|").map((cell) => cell.trim());
    const names = /^`([^`]+)`<br>`([^`]+)`$/.exec(cells[1] ?? "");
    if (!names) continue;
    const labels: Record<string, string[]> = {};
    for (const [, key] of cells[4]!.matchAll(/`([^`]+)`/g))
      labels[key!] = special[names[1]!]?.[key!] ?? labelValues[key!] ?? ["a", "b"];
    if (cells[5] === "worker") labels["worker"] = workers;
    found.push({
      name: names[1]!,
      prometheus_name: names[2]!,
      type: kinds[cells[2]!] ?? "histogram",
      unit: cells[3]!,
      description: cells[6]!,
      labels,
    });
  }
  return found;
}

export const catalogue = readCatalogue();

/** What a value of the metric is about: enough for a chart to look right. */
function levelOf(metric: Metric): number {
  switch (metric.unit) {
    case "By":
    case "bytes":
      return metric.type === "counter" ? 40e6 : 6e9;
    case "s":
      return metric.type === "counter" ? 0.6 : 0.8;
    case "ms":
      return 240;
    case "1":
    case "ratio":
      return 0.9;
    case "%":
    case "percent":
      return 90;
    case "{token}":
    case "tokens":
    case "tokens/s":
      return 4200;
    case "{flop}":
    case "{flop}/s":
      return 3e12;
    default:
      return 9;
  }
}

export function query(q: URLSearchParams, range: { from: number; until: number }) {
  const metric = catalogue.find((one) => one.name === q.get("name") || one.prometheus_name === q.get("name"));
  if (!metric) return null;
  const fn = q.get("fn") ?? (metric.type === "counter" ? "rate" : metric.type === "histogram" ? "p95" : "last");
  const by = (q.get("by") ?? "").split(",").filter((key) => metric.labels[key]);
  const width = range.until - range.from;
  const step = Number(q.get("step")) || Math.max(5e6, Math.ceil(width / 300 / 5e6) * 5e6);
  const start = Math.ceil(range.from / step) * step;
  const where = Object.fromEntries(
    (q.get("where") ?? "")
      .split(",")
      .filter(Boolean)
      .map((pair) => pair.split(/:(.*)/s) as [string, string]),
  );
  let groups: Record<string, string>[] = [{}];
  for (const key of by)
    groups = groups.flatMap((group) =>
      metric.labels[key]!.filter((value) => !where[key] || where[key] === value).map((value) => ({
        ...group,
        [key]: value,
      })),
    );
  const quantile: Record<string, number> = { p50: 1, p90: 2.2, p95: 2.9, p99: 4.6, mean_value: 1.2 };
  const level =
    (levelOf(metric) * (fn === "rate" && metric.type === "histogram" ? 1 : (quantile[fn] ?? 1))) /
    (metric.type === "histogram" ? 3 : 1);
  const rare = /fail|error|dropped|reject|restart|evict|oom|nonfinite|suppressed|preempt/.test(metric.name);
  return {
    name: metric.name,
    unit: metric.unit,
    type: metric.type,
    fn,
    start,
    step,
    truncated: groups.length > 20,
    series: groups.slice(0, 20).map((labels, i) => {
      const seed = seedOf(metric.name + JSON.stringify(labels) + (metric.type === "histogram" ? "" : fn));
      const bad = labels["status"] === "failed" || labels["status"] === "error" ? 0.02 : 1;
      const points: (number | null)[] = [];
      for (let t = start; t <= range.until; t += step) {
        if (t < started || t > now()) points.push(null);
        else if (rare) points.push(new Random(seed ^ Math.floor(t / step)).next() < 0.02 ? 0.2 : 0);
        else {
          const raw = level * bad * wave(seed, t) * (fn === "increase" ? step / 1e6 : 1) * (1 / (1 + i * 0.35));
          points.push(
            ["{request}", "{operation}", "{session}", "requests", ""].includes(metric.unit) && fn === "last"
              ? Math.round(raw)
              : raw,
          );
        }
      }
      return { labels, points };
    }),
  };
}

export function exemplars(q: URLSearchParams, range: { from: number; until: number }) {
  const metric = catalogue.find((one) => one.name === q.get("name"));
  if (!metric || metric.type !== "histogram") return { exemplars: [] };
  return {
    exemplars: findTraces(new URLSearchParams(), range, 4000)
      .filter((_, i) => i % 40 === 0)
      .map((trace) => ({
        time: trace.start + trace.duration,
        value: (levelOf(metric) / 3) * (trace.duration / 1e6),
        trace_id: trace.trace_id,
        span_id: trace.root.span_id,
        labels: { base_model: trace.base_model },
      })),
  };
}
