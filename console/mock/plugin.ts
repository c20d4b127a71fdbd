// Answers the console's calls with made-up data while it is developed without a server. Never part of the build.
// Keys: "operator" logs in as alice, who sees everything; "bob" as a user; everything else is refused.

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Plugin } from "vite";
import { largeTrace } from "./large_trace.ts";
import * as metrics from "./metrics.ts";
import { playground } from "./playground.ts";
import { seedOf, wave } from "./random.ts";
import * as system from "./system.ts";
import { findLogs, findTraces, trace } from "./traces.ts";
import { now, runDetail, runRow, runs, samplers, sessions, started, stepsOf, users } from "./world.ts";

let user: string | null = process.env["TUFT_MOCK_USER"] ?? null;
const deleted = new Set<string>();
const published = new Map<string, boolean>();

function when(text: string | null, fallback: number): number {
  if (!text) return fallback;
  const match = /^-(\d+)([smhd])$/.exec(text);
  return match ? now() - Number(match[1]) * { s: 1e6, m: 60e6, h: 3600e6, d: 86400e6 }[match[2] as "s"]! : Number(text);
}

const whoami = () => ({
  user,
  operator: user === "alice",
  version: "1.4.0",
  store: true,
  console: true,
  server_time: now(),
});

class Refusal extends Error {
  constructor(
    readonly status: number,
    detail: string,
  ) {
    super(detail);
  }
}

function page<T>(rows: T[], q: URLSearchParams): { rows: T[]; next: string | null } {
  const at = Number(q.get("cursor") ?? 0);
  const limit = Number(q.get("limit") ?? 100);
  return { rows: rows.slice(at, at + limit), next: at + limit < rows.length ? String(at + limit) : null };
}

function durations(q: URLSearchParams, range: { from: number; until: number }) {
  const bounds: number[] = [];
  for (let bound = 100; bound < 1e9; bound *= 10 ** 0.125) bounds.push(Math.round(bound));
  const counts = new Array(bounds.length + 1).fill(0);
  const failed = new Array(bounds.length + 1).fill(0);
  for (const one of findTraces(q, range, 20000)) {
    let at = bounds.findIndex((bound) => one.duration <= bound);
    if (at < 0) at = bounds.length;
    counts[at]++;
    if (one.failed_spans) failed[at]++;
  }
  return { bounds, counts, failed };
}

function series(q: URLSearchParams, range: { from: number; until: number }) {
  const step = Number(q.get("step")) || Math.max(10e6, (range.until - range.from) / 120);
  const by = q.get("by") ?? "";
  const groups = new Map<string, (number[] | null)[]>();
  const count = Math.ceil((range.until - range.from) / step);
  for (const one of findTraces(q, range, 20000)) {
    const key = by === "name" ? one.root.name : by ? String(one[by as "user"] ?? "") : "";
    if (!groups.has(key)) groups.set(key, new Array(count).fill(null));
    const at = Math.floor((one.start - range.from) / step);
    const list = groups.get(key)!;
    if (at >= 0 && at < count) (list[at] ??= []).push(one.failed_spans ? -one.duration : one.duration);
  }
  const fn = q.get("fn") ?? "count";
  const value = (all: number[] | null): number | null => {
    const sorted = (all ?? []).map(Math.abs).sort((a, b) => a - b);
    const sum = sorted.reduce((total, one) => total + one, 0);
    if (fn === "count") return sorted.length;
    if (fn === "rate") return sorted.length / (step / 1e6);
    if (fn === "errors") return (all ?? []).filter((one) => one < 0).length;
    if (fn === "busy") return sum / step;
    if (!sorted.length) return null;
    if (fn === "mean") return sum / sorted.length;
    return sorted[Math.min(sorted.length - 1, Math.floor((Number(fn.slice(1)) / 100) * sorted.length))]!;
  };
  return { start: range.from, step, series: [...groups].map(([key, points]) => ({ key, points: points.map(value) })) };
}

function overview() {
  const queue = (name: string) => Math.round(wave(seedOf(name), now()) * 6);
  return {
    server_time: now(),
    version: "1.4.0",
    started,
    ready: true,
    reason: null,
    models: [
      {
        base_model: "Qwen/Qwen3-0.6B",
        state: "ready",
        incarnation: 1,
        training: true,
        sampling: true,
        queue: { training: queue("a"), sampling: queue("b") },
        last_step: now() - 1.4e6,
        why_waiting: "3 operations wait: the worker runs a pass of bob's run; 2 of them are alice's",
      },
      {
        base_model: "meta-llama/Llama-3.2-1B",
        state: "ready",
        incarnation: 2,
        training: true,
        sampling: true,
        queue: { training: 0, sampling: 0 },
        last_step: now() - 42e6,
        why_waiting: null,
      },
    ],
    sessions: sessions.filter((one) => one.alive).length,
    runs: runs.length,
    samplers: samplers.length,
    pending: queue("a") + queue("b"),
    users_active: user === "alice" ? 3 : null,
  };
}

function answer(path: string, q: URLSearchParams): unknown {
  const range = { from: when(q.get("from"), now() - 3600e6), until: when(q.get("until"), now()) };
  if (user !== "alice") q.set("user", user!);
  const mine = <T extends { user: string }>(rows: T[]) => rows.filter((row) => user === "alice" || row.user === user);
  const parts = path.split("/").slice(1).map(decodeURIComponent);
  switch (parts[0]) {
    case "whoami":
      return whoami();
    case "overview":
      return overview();
    case "traces":
      if (parts[1] === "histogram") return durations(q, range);
      if (parts[1] === "series") return series(q, range);
      if (parts[1]) {
        const found = largeTrace(parts[1]) ?? trace(parts[1]);
        if (!found) throw new Refusal(404, `There is no trace ${parts[1]}, or it is older than what is kept.`);
        return parts[2] === "perfetto" ? { traceEvents: [] } : found;
      }
      {
        const limit = Number(q.get("limit") ?? 100);
        const until = q.get("cursor") ? Number(q.get("cursor")) : range.until;
        const traces = findTraces(q, { from: range.from, until }, limit);
        return { traces, next: traces.length === limit ? String(traces.at(-1)!.start - 1) : null };
      }
    case "logs":
      return findLogs(q, range);
    case "metrics":
      if (parts[1] === "query") {
        const found = metrics.query(q, range);
        if (!found) throw new Refusal(404, `There is no metric ${q.get("name")}.`);
        return found;
      }
      if (parts[1] === "exemplars") return metrics.exemplars(q, range);
      return { metrics: metrics.catalogue };
    case "runs": {
      if (!parts[1]) {
        const { rows, next } = page(mine(runs).map(runRow), q);
        return { runs: rows, next };
      }
      const run = mine(runs).find((one) => one.run === parts[1]);
      if (!run) throw new Refusal(404, `There is no training run ${parts[1]}, or it is not yours.`);
      if (parts[2] === "steps")
        return { steps: stepsOf(run, Number(q.get("after") ?? 0), Number(q.get("points") ?? 1000)).steps };
      const detail = runDetail(run);
      detail.checkpoints = detail.checkpoints.filter((one) => !deleted.has(one.tinker_path));
      for (const one of detail.checkpoints) one.public = published.get(one.tinker_path) ?? one.public;
      return detail;
    }
    case "samplers":
      return { samplers: page(mine(samplers), q).rows, next: page(mine(samplers), q).next };
    case "sessions":
      return { sessions: page(mine(sessions), q).rows, next: page(mine(sessions), q).next };
    case "tenants":
      return { tenants: system.tenants().filter((row) => user === "alice" || row.user === user) };
    case "system":
      return system.system(user === "alice");
  }
  throw new Refusal(404, `There is no ${path}.`);
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  let text = "";
  for await (const chunk of request) text += chunk;
  return text;
}

function send(response: ServerResponse, status: number, body: unknown) {
  response.statusCode = status;
  response.setHeader("Content-Type", "application/json");
  response.end(body === undefined ? "" : JSON.stringify(body));
}

async function serve(request: IncomingMessage, response: ServerResponse, next: () => void) {
  const url = new URL(request.url ?? "/", "http://mock");
  if (url.pathname === "/console/login") {
    const key = JSON.parse((await bodyOf(request)) || "{}").key;
    user = key === "operator" ? "alice" : users.includes(key) ? key : null;
    return user ? send(response, 200, whoami()) : send(response, 401, { detail: "Unknown API key" });
  }
  if (url.pathname === "/console/logout") {
    user = null;
    return send(response, 204, undefined);
  }
  if (!url.pathname.startsWith("/api/") && !url.pathname.startsWith("/oai/")) return next();
  if (!user || request.headers["x-tuft-console"] !== "1")
    return send(response, 401, { detail: "the session of the console has ended: log in again" });
  if (url.pathname === "/oai/api/v1/models") {
    const paths = samplers.flatMap((one) => (one.model_path ? [one.model_path] : []));
    const data = ["Qwen/Qwen3-0.6B", "meta-llama/Llama-3.2-1B", ...paths].map((id) => ({ id, object: "model" }));
    return send(response, 200, { object: "list", data, has_more: false });
  }
  if (url.pathname.startsWith("/oai/")) return playground(JSON.parse(await bodyOf(request)), response);
  const action = /^\/api\/v1\/training_runs\/([^/]+)\/checkpoints\/(.+?)(\/publish|\/archive)?$/.exec(url.pathname);
  if (action) {
    const path = `tinker://${decodeURIComponent(action[1]!)}/${decodeURIComponent(action[2]!)}`;
    if (action[3] === "/archive") return send(response, 200, { url: "http://mock/api/v1/archives?token=made-up" });
    if (action[3] === "/publish") published.set(path, request.method === "POST");
    else if (request.method === "DELETE") deleted.add(path);
    return send(response, 200, {});
  }
  try {
    send(response, 200, answer(url.pathname.replace("/api/v1/observe", ""), url.searchParams));
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    send(response, error.status, { detail: error.message });
  }
}

const policy =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; " +
  "frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

export function mockApi(): Plugin {
  const handle = (request: IncomingMessage, response: ServerResponse, next: () => void) => {
    serve(request, response, next).catch((error) => send(response, 500, { detail: `The mock failed: ${error.stack}` }));
  };
  return {
    name: "tuft-mock",
    configureServer(server) {
      server.middlewares.use(handle);
    },
    // The built files under the policy that the server sends.
    configurePreviewServer(server) {
      server.middlewares.use((request, response, next) => {
        response.setHeader("Content-Security-Policy", policy);
        handle(request, response, next);
      });
    },
  };
}
