import { describe, expect, it } from "vitest";
import type { ModelStatus, Overview, StoreState, Tenant, Worker } from "../../api/types.ts";
import { attention } from "./attention.ts";

const now = 1e15;
const model: ModelStatus = {
  base_model: "m",
  state: "ready",
  incarnation: 1,
  training: true,
  sampling: true,
  queue: { training: 2, sampling: 0 },
  last_step: now - 1e6,
  why_waiting: null,
};
const overview = (models: ModelStatus[]): Overview => ({
  server_time: now,
  version: "1",
  started: 0,
  ready: true,
  reason: null,
  models,
  sessions: 0,
  runs: 0,
  samplers: 0,
  pending: 0,
  users_active: null,
});
const worker = (age: number): Worker => ({
  base_model: "m",
  state: "ready",
  incarnation: 1,
  pid: 1,
  threads: 1,
  device: "cpu",
  metrics: { 'tuft.scheduler.last_step.age{base_model="m"}': age },
});
const store: StoreState = {
  on_disk: true,
  problem: null,
  disk_bytes: 0,
  disk_bytes_max: 1,
  memory_bytes: 0,
  spans: 0,
  logs: 0,
  series: 0,
  steps: 0,
  oldest: null,
  dropped_records: 0,
};
const tenant = (used: number, max: number | null): Tenant => ({
  user: "bob",
  sessions: 0,
  runs: used,
  samplers: 0,
  pending: 0,
  queued_bytes: 0,
  checkpoint_bytes: 0,
  tokens: { train: 0, input: 0, output: 0 },
  engine_share: null,
  quotas: [{ limit: "limits.runs_per_user_max", used, max }],
});

describe("attention", () => {
  it("is quiet while all is well", () =>
    expect(attention(overview([model]), [worker(0.2)], store, [tenant(1, 20)])).toEqual([]));
  it("tells a frozen engine from an idle one", () => {
    expect(attention(overview([model]), [worker(60)], store, [])[0]?.text).toMatch(/has work .* no step for 1 min/);
    expect(attention(overview([model]), [worker(0)], store, [])).toEqual([]);
  });
  it("does not take an engine that only samples for a frozen one", () => {
    const samples = { ...model, queue: { training: 0, sampling: 9 }, last_step: now - 3600e6 };
    expect(attention(overview([samples]), [worker(0.01)], store, [])).toEqual([]);
  });
  it("puts failures first", () => {
    const notices = attention(
      overview([{ ...model, state: "dead" }]),
      [{ ...worker(60), state: "dead" }],
      { ...store, dropped_records: 5 },
      [tenant(20, 20)],
    );
    expect(notices.map((notice) => notice.tone)).toEqual(["bad", "warn", "warn"]);
  });
  it("ignores limits that are none", () => expect(attention(overview([]), [], store, [tenant(5, null)])).toEqual([]));
});
