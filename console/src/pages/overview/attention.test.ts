import { describe, expect, it } from "vitest";
import type { ModelStatus, Overview, StoreState, Tenant } from "../../api/types.ts";
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
  it("is quiet while all is well", () => expect(attention(overview([model]), store, [tenant(1, 20)], now)).toEqual([]));
  it("tells a frozen engine from an idle one", () => {
    const late = { ...model, last_step: now - 60e6 };
    expect(attention(overview([late]), store, [], now)[0]?.text).toMatch(/no step for 1 min while 2 operations wait/);
    expect(attention(overview([{ ...late, queue: { training: 0, sampling: 0 } }]), store, [], now)).toEqual([]);
  });
  it("puts failures first", () => {
    const notices = attention(
      overview([{ ...model, state: "dead" }]),
      { ...store, dropped_records: 5 },
      [tenant(20, 20)],
      now,
    );
    expect(notices.map((notice) => notice.tone)).toEqual(["bad", "warn", "warn"]);
  });
  it("ignores limits that are none", () => expect(attention(overview([]), store, [tenant(5, null)], now)).toEqual([]));
});
