// The users, sessions, runs and samplers of a made-up server.

import { Random } from "./random.ts";

const random = new Random(7);
export const now = () => Date.now() * 1000;
export const started = now() - 3 * 3600e6 - 17 * 60e6;
export const models = ["Qwen/Qwen3-0.6B", "meta-llama/Llama-3.2-1B"];
export const workers = ["Qwen/Qwen3-0.6B#1", "Qwen/Qwen3-0.6B#2", "meta-llama/Llama-3.2-1B"];
export const users = ["alice", "bob", "carol"];

export interface MockRun {
  run: string;
  session: string;
  user: string;
  base_model: string;
  lora_rank: number;
  optimizer: string;
  created: number;
  alive: boolean;
  corrupted: boolean;
  secondsPerStep: number;
  seed: number;
}

const uuid = () => `${random.hex(8)}-${random.hex(4)}-4${random.hex(3)}-a${random.hex(3)}-${random.hex(12)}`;

export const sessions = users.flatMap((user, u) =>
  Array.from({ length: [3, 2, 1][u]! }, (_, i) => ({
    session: uuid(),
    user,
    created: started + random.between(1, 120) * 60e6,
    last_heartbeat: i === 0 ? now() - 2e6 : now() - random.between(10, 60) * 60e6,
    display_name: random.pick(["sl_loop", "rl_basic", "math_rl", "chat_sl", null]),
    project: random.pick(["distill", "reasoning", null]),
    sdk_version: random.pick(["0.38.0", "0.36.1"]),
    alive: i === 0,
    runs: 0,
    samplers: 0,
    busy_share: random.between(0.35, 0.98),
    concurrency: random.between(1, 9),
  })),
);

export const runs: MockRun[] = sessions.flatMap((session, s) =>
  Array.from({ length: [2, 1, 1, 2, 1, 1][s] ?? 1 }, (_, i) => {
    session.runs++;
    return {
      run: `${session.session}:train:${i}`,
      session: session.session,
      user: session.user,
      base_model: models[(s + i) % 2]!,
      lora_rank: random.pick([8, 16, 32]),
      optimizer: random.pick(["adamw", "adamw", "dimuon"]),
      created: session.created + 5e6,
      alive: session.alive,
      corrupted: s === 4,
      secondsPerStep: random.between(2.2, 7.5),
      seed: random.int(1, 1e9),
    };
  }),
);

export const samplers = sessions.flatMap((session, s) =>
  Array.from({ length: s % 2 ? 1 : 2 }, (_, i) => {
    session.samplers++;
    const run = runs.find((candidate) => candidate.session === session.session)!;
    return {
      sampler: `${session.session}:sample:${i}`,
      session: session.session,
      user: session.user,
      base_model: run.base_model,
      model_path: i === 0 ? `tinker://${run.run}/sampler_weights/${String(s * 10 + 20).padStart(6, "0")}` : null,
      created: session.created + 60e6,
      last_active: session.alive ? now() - random.between(1, 30) * 1e6 : session.last_heartbeat,
      requests: random.int(40, 4000),
      follows_run: i === 0 && session.alive ? run.run : null,
    };
  }),
);

export function stepsOf(run: MockRun, after: number, points: number) {
  const end = run.alive ? now() : run.created + 55 * 60e6;
  const total = Math.floor((end - run.created) / 1e6 / run.secondsPerStep);
  const stride = Math.max(1, Math.ceil((total - after) / points));
  const steps = [];
  for (let step = after + 1; step <= total; step++) {
    if (stride > 1 && (step - after - 1) % stride && step !== total) continue;
    const r = new Random(run.seed + step * 7919);
    const wait = r.tail(0.14, 0.8) * run.secondsPerStep;
    const idle = r.between(0.05, 0.5) * run.secondsPerStep * (run.seed % 3 === 0 ? 2 : 0.6);
    const pass = run.secondsPerStep * r.between(0.42, 0.55);
    const save = step % 50 === 0 ? r.between(0.3, 0.8) : 0;
    const optim = run.secondsPerStep * 0.06;
    const spike = step % 173 === 0 ? 1.6 : 1;
    const tokens = r.int(6000, 9000);
    steps.push({
      step,
      time: run.created + step * run.secondsPerStep * 1e6,
      loss: (0.85 + 1.9 * Math.exp(-step / (120 + (run.seed % 200))) + r.between(-0.09, 0.09)) * spike,
      grad_norm: (0.4 + 2.2 * Math.exp(-step / 80) + r.between(0, 0.25)) * spike * spike,
      learning_rate: 1e-4 * Math.min(1, step / 40) * (0.5 + 0.5 * Math.cos((Math.PI * Math.min(step, 3000)) / 3000)),
      tokens,
      seconds: pass + wait + idle + save + optim,
      pass_seconds: pass,
      step_seconds: optim,
      wait_seconds: wait,
      save_seconds: save,
      idle_seconds: idle,
      clipped: spike > 1,
    });
  }
  return { steps, total };
}

export function runRow(run: MockRun) {
  const { steps, total } = stepsOf(
    run,
    Math.max(0, Math.floor((now() - run.created) / 1e6 / run.secondsPerStep) - 2),
    10,
  );
  const last = steps.at(-1) ?? stepsOf(run, 0, 1e6).steps.at(-1);
  return {
    run: run.run,
    session: run.session,
    user: run.user,
    base_model: run.base_model,
    lora_rank: run.lora_rank,
    optimizer: run.optimizer,
    created: run.created,
    last_active: last?.time ?? null,
    alive: run.alive,
    corrupted: run.corrupted,
    steps: total,
    loss: last?.loss ?? null,
    grad_norm: last?.grad_norm ?? null,
    learning_rate: last?.learning_rate ?? null,
    tokens_per_second: last ? last.tokens / last.seconds : null,
  };
}

export function runDetail(run: MockRun) {
  const r = new Random(run.seed);
  const { steps } = stepsOf(run, 0, 200);
  const sum = (key: "pass_seconds" | "step_seconds" | "wait_seconds" | "save_seconds" | "idle_seconds") =>
    steps.reduce((total, step) => total + step[key], 0);
  const parts = [
    { kind: "passes", seconds: sum("pass_seconds") },
    { kind: "optimizer", seconds: sum("step_seconds") },
    { kind: "waiting", seconds: sum("wait_seconds") },
    { kind: "saving", seconds: sum("save_seconds") },
    { kind: "idle", seconds: sum("idle_seconds") },
  ];
  const total = parts.reduce((all, part) => all + part.seconds, 0) || 1;
  const idle = parts[4]!.seconds / total;
  const checkpoint = (name: string, kind: string, at: number, size: number, ttl: number | null) => ({
    checkpoint_id: `${kind === "training" ? "weights" : "sampler_weights"}/${name}`,
    kind,
    tinker_path: `tinker://${run.run}/${kind === "training" ? "weights" : "sampler_weights"}/${name}`,
    size_bytes: size,
    created: run.created + at * 1e6,
    expires: ttl ? run.created + (at + ttl) * 1e6 : null,
    public: name === "final",
    owner: run.user,
  });
  return {
    ...runRow(run),
    checkpoints: [50, 100, 150].flatMap((step) => [
      checkpoint(
        String(step).padStart(6, "0"),
        "training",
        step * run.secondsPerStep,
        r.int(8, 90) * 1e6,
        step === 50 ? 86400 : null,
      ),
      checkpoint(String(step).padStart(6, "0"), "sampler", step * run.secondsPerStep + 1, r.int(4, 40) * 1e6, null),
    ]),
    time: { window_seconds: total, parts: parts.map((part) => ({ ...part, share: part.seconds / total })) },
    advice:
      idle > 0.2
        ? [
            `${Math.round(idle * 100)} % of the time no request of this run was waiting: send the next batch before fetching the result of this one.`,
          ]
        : ["The engine is kept busy by this run. Larger batches would not make it faster; a smaller rank would."],
    operations: [
      {
        operation: "forward_backward",
        count: steps.length,
        p50: run.secondsPerStep * 0.5e6,
        p95: run.secondsPerStep * 0.9e6,
        failed: 0,
      },
      {
        operation: "optim_step",
        count: steps.length,
        p50: run.secondsPerStep * 0.06e6,
        p95: run.secondsPerStep * 0.1e6,
        failed: 0,
      },
      { operation: "save_weights", count: 3, p50: 420e3, p95: 800e3, failed: run.corrupted ? 1 : 0 },
      { operation: "sample", count: r.int(100, 900), p50: 1.4e6, p95: 4.1e6, failed: r.int(0, 3) },
    ],
  };
}
