import { seedOf, wave } from "./random.ts";
import { now, runs, samplers, sessions, started, users, workers } from "./world.ts";

const mib = 1024 * 1024;

export function tenants() {
  return users.map((user, i) => {
    const share = [0.56, 0.31, 0.07][i]! * (0.8 + 0.4 * wave(seedOf(user), now()));
    const count = (rows: { user: string }[]) => rows.filter((row) => row.user === user).length;
    return {
      user,
      sessions: sessions.filter((one) => one.user === user && one.alive).length,
      runs: count(runs),
      samplers: count(samplers),
      pending: Math.round(wave(seedOf(user), now()) * 5),
      queued_bytes: Math.round(wave(seedOf(user), now()) * 3 * mib),
      checkpoint_bytes: [880, 310, 42][i]! * mib,
      tokens: {
        train: [9.4e6, 3.1e6, 0.2e6][i]!,
        input: [2.2e6, 4.4e6, 0.1e6][i]!,
        output: [1.1e6, 1.9e6, 0.04e6][i]!,
      },
      engine_share: Math.min(share, 1),
      quotas: [
        { limit: "limits.sessions_per_user_max", used: sessions.filter((one) => one.user === user).length, max: 100 },
        { limit: "limits.runs_per_user_max", used: count(runs), max: i === 0 ? 3 : 20 },
        { limit: "limits.samplers_per_user_max", used: count(samplers), max: 50 },
        { limit: "limits.checkpoint_bytes_per_user_max", used: [880, 310, 42][i]! * mib, max: 1024 * mib },
        {
          limit: "limits.queued_bytes_per_user_max",
          used: Math.round(wave(seedOf(user), now()) * 3 * mib),
          max: 256 * mib,
        },
      ],
    };
  });
}

function workerMetrics(worker: string): Record<string, number> {
  const model = worker.split("#")[0];
  const w = (name: string) => wave(seedOf(worker + name), now());
  const m = (name: string, labels: string) => `${name}{base_model="${model}"${labels ? `,${labels}` : ""}}`;
  return {
    [m("tuft.worker.busy", "")]: w("busy"),
    [m("tuft.kv_cache.blocks", 'state="used"')]: Math.round(w("kv") * 900),
    [m("tuft.kv_cache.blocks", 'state="cached"')]: Math.round(w("kvc") * 600),
    [m("tuft.kv_cache.blocks", 'state="free"')]: 2048 - Math.round(w("kv") * 900) - Math.round(w("kvc") * 600),
    [m("tuft.kv_cache.usage", "")]: (w("kv") * 900) / 2048,
    [m("tuft.lora.adapters", 'kind="training"')]: 4,
    [m("tuft.lora.adapters", 'kind="sampler"')]: 6,
    [m("tuft.lora.adapters.paged", 'kind="training"')]: 1,
    [m("tuft.lora.adapters.paged", 'kind="sampler"')]: 3,
    [m("tuft.lora.pool.memory", 'state="reserved"')]: 410 * mib,
    [m("tuft.lora.pool.memory", 'state="limit"')]: 1024 * mib,
    [m("tuft.lora.memory", 'part="weights"')]: 120 * mib,
    [m("tuft.lora.memory", 'part="optimizer"')]: 190 * mib,
    [m("tuft.lora.memory", 'part="gradients"')]: 95 * mib,
    [m("tuft.scheduler.requests", 'state="running"')]: Math.round(w("run") * 8),
    [m("tuft.scheduler.requests", 'state="waiting"')]: Math.round(w("wait") * 4),
    [m("tuft.scheduler.last_step.age", "")]: w("age") * 0.4,
    [m("tuft.device.peak_flops", "")]: 1.9e12,
    [m("tuft.training.mfu", "")]: 0.4 + 0.3 * w("mfu"),
    [m("tuft.sampling.mfu", "")]: 0.05 + 0.1 * w("smfu"),
    "process.memory.usage": 2900 * mib,
    "process.thread.count": 11,
    'process.cpu.time{cpu.mode="user"}': 5120.4,
  };
}

const config = `server:
  host: 0.0.0.0
  port: 10610
authorized_users:
  "***": alice
  "***": bob
  "***": carol
console:
  enabled: true
  operators: [alice]
supported_models:
  - model_name: Qwen/Qwen3-0.6B
    model_path: /models/qwen3-0.6b
    workers: 2
    max_model_len: 8192
  - model_name: meta-llama/Llama-3.2-1B
    model_path: /models/llama-3.2-1b
persistence:
  mode: sqlite
  directory: /var/lib/tuft/state
  # encryption key
  key: "***"
telemetry:
  enabled: true
  otlp_endpoint: http://collector:4317
  headers:
    authorization: "***"
  store:
    disk_bytes_max: 1073741824
limits:
  runs_per_user_max: 20
  requests_per_second: 50
`;

export function system(operator: boolean) {
  const store = {
    on_disk: true,
    problem: null,
    disk_bytes: 412 * mib,
    disk_bytes_max: 1024 * mib,
    memory_bytes: 21 * mib,
    spans: 1_204_311,
    logs: 3_310_402,
    series: 812,
    steps: 9123,
    oldest: started,
    dropped_records: 0,
  };
  const limits = {
    "limits.runs_per_user_max": 20,
    "limits.sessions_per_user_max": 100,
    "limits.request_bytes_max": 64 * mib,
    "limits.checkpoint_bytes_per_user_max": 1024 * mib,
    "limits.requests_per_second": 50,
  };
  if (!operator) return { version: "1.4.0", started, config: null, telemetry: { store }, limits };
  return {
    version: "1.4.0",
    build: { compiler: "g++ 12.2.0", type: "release", torch: null, commit: "ae0b9a9c4f21", allocator: "mimalloc" },
    started,
    host: {
      name: "trainer-01",
      os: "Debian GNU/Linux 12",
      cpu: "AMD EPYC 9354 32-Core Processor",
      cpus: 16,
      memory_bytes: 128 * 1024 * mib,
      pid: 4711,
    },
    config,
    workers: workers.map((base_model, i) => ({
      base_model,
      state: "ready",
      incarnation: i + 1,
      pid: 4730 + i,
      threads: 8,
      device: "cpu",
      metrics: workerMetrics(base_model),
    })),
    telemetry: { store, export: { enabled: true, signals: ["traces", "metrics", "logs"] } },
    limits,
  };
}
