// Made-up traces and logs: summaries by a formula of time, whole traces by the id of a summary.

import { Random, seedOf } from "./random.ts";
import { models, now, runs, samplers, started } from "./world.ts";

const spacing = 2.4e6; // microseconds between two traces
const operations = ["forward_backward", "optim_step", "sample", "sample", "save_weights", "forward"] as const;
const http: Record<string, string> = {
  forward_backward: "POST /api/v1/forward_backward",
  forward: "POST /api/v1/forward",
  optim_step: "POST /api/v1/optim_step",
  sample: "POST /api/v1/asample",
  save_weights: "POST /api/v1/save_weights",
};
const medians: Record<string, number> = {
  forward_backward: 1.6e6,
  forward: 0.7e6,
  optim_step: 0.12e6,
  sample: 1.1e6,
  save_weights: 0.5e6,
};

export const bigTrace = "b16".padEnd(32, "0");

export function summary(index: number) {
  const r = new Random(index * 31 + 5);
  const operation = r.pick(operations);
  const run = r.pick(runs);
  const sampler = operation === "sample" ? r.pick(samplers) : null;
  const failed = r.next() < 0.03;
  const trace_id = index.toString(16).padStart(8, "0") + new Random(index).hex(24);
  const duration = r.tail(medians[operation]!, 0.75);
  return {
    trace_id,
    root: { name: http[operation]!, service: "tuft", span_id: new Random(index + 1).hex(16) },
    start: index * spacing,
    duration,
    spans: operation === "sample" ? 14 : 11,
    failed_spans: failed ? 2 : 0,
    user: sampler?.user ?? run.user,
    session: sampler?.session ?? run.session,
    run: operation === "sample" ? null : run.run,
    sampler: sampler?.sampler ?? null,
    request: new Random(index + 2).hex(24),
    operation,
    base_model: sampler?.base_model ?? run.base_model,
    match: { span_id: new Random(index + 1).hex(16), name: http[operation]!, duration },
  };
}
export type Summary = ReturnType<typeof summary>;

function matches(trace: Summary, q: URLSearchParams): boolean {
  const same = (key: "session" | "run" | "sampler" | "request" | "operation" | "base_model" | "user") =>
    !q.get(key) || trace[key] === q.get(key);
  const name = q.get("name");
  const text = q.get("text")?.toLowerCase();
  return (
    (["session", "run", "sampler", "request", "operation", "base_model", "user"] as const).every(same) &&
    (!q.get("service") || q.get("service") === "tuft") &&
    (!q.get("status") || (q.get("status") === "error") === trace.failed_spans > 0) &&
    (!q.get("min_duration") || trace.duration >= Number(q.get("min_duration"))) &&
    (!q.get("max_duration") || trace.duration <= Number(q.get("max_duration"))) &&
    (!name ||
      name === "future_store.execute_operation" ||
      (name.endsWith("*") ? trace.root.name.startsWith(name.slice(0, -1)) : trace.root.name === name)) &&
    (!text || JSON.stringify(trace).toLowerCase().includes(text))
  );
}

/** All that match, newest first, at most `max`. */
export function findTraces(q: URLSearchParams, range: { from: number; until: number }, max: number): Summary[] {
  const found: Summary[] = [];
  const first = Math.ceil(Math.max(range.from, started) / spacing);
  for (let i = Math.floor(Math.min(range.until, now() - 1e6) / spacing); i >= first && found.length < max; i--) {
    const trace = summary(i);
    if (matches(trace, q)) found.push(trace);
  }
  return found;
}

interface MockSpan {
  span_id: string;
  parent_id: string | null;
  name: string;
  service: string;
  worker: string;
  scope: string;
  user: string | null;
  kind: string;
  start: number;
  duration: number;
  failed: boolean;
  status_message: string;
  attributes: Record<string, unknown>;
  events: unknown[];
  links: unknown[];
}

export function trace(id: string) {
  const big = id === bigTrace;
  const index = big ? Math.floor(now() / spacing) - 100 : Number.parseInt(id.slice(0, 8), 16);
  if (!Number.isFinite(index)) return null;
  const info = summary(index);
  if (!big && info.trace_id !== id) return null;
  const r = new Random(index * 17);
  const spans: MockSpan[] = [];
  const share = {
    "tuft.session_id": info.session,
    ...(info.run ? { "tuft.training_run_id": info.run } : {}),
    ...(info.sampler ? { "tuft.sampling_session_id": info.sampler } : {}),
    "tuft.request_id": info.request,
    "tuft.operation_type": info.operation,
    "tuft.base_model": info.base_model,
  };
  const add = (
    parent: MockSpan | null,
    name: string,
    from: number,
    to: number,
    more: Partial<MockSpan> = {},
  ): MockSpan => {
    const base = parent ?? { start: info.start, duration: info.duration };
    const span: MockSpan = {
      span_id: parent ? r.hex(16) : info.root.span_id,
      parent_id: parent?.span_id ?? null,
      name,
      service: "tuft",
      worker: "",
      scope: name.split(".")[0]!,
      user: info.user,
      kind: "internal",
      start: base.start + base.duration * from,
      duration: base.duration * (to - from),
      failed: false,
      status_message: "",
      attributes: { ...share },
      events: [],
      links: [],
      ...more,
    };
    span.attributes = { ...share, ...(more.attributes ?? {}) };
    spans.push(span);
    return span;
  };
  const worker = { worker: info.base_model, kind: "server" as const };
  const inWorker = { worker: info.base_model };
  const failed = info.failed_spans > 0;
  const failure = failed
    ? {
        failed: true,
        status_message: "The batch has 9000 tokens; engine.batch_tokens_max is 8192.",
        events: [
          {
            time: info.start + info.duration * 0.9,
            name: "exception",
            attributes: {
              "exception.type": "InvalidArgument",
              "exception.message": "The batch has 9000 tokens; engine.batch_tokens_max is 8192.",
            },
          },
        ],
      }
    : {};
  const root = add(null, info.root.name, 0, 1, {
    kind: "server",
    attributes: {
      "http.request.method": "POST",
      "http.route": info.root.name.slice(5),
      "http.response.status_code": 200,
      "url.path": info.root.name.slice(5),
    },
  });
  const execute = add(root, "future_store.execute_operation", 0.01, 1, failure);
  const queue = r.between(0.1, 0.5);
  if (info.operation === "sample") {
    const run = add(execute, "sampling_controller.run_sample", 0.01, 0.99);
    const call = add(run, "sampling_backend.sample", 0.02, 0.99, { kind: "client" });
    const model = add(call, "hf_model.sample", 0.02, 0.98, { ...worker, ...failure });
    add(root, "PREPROCESS", 0.001, 0.008);
    add(model, "SCHEDULE", 0, queue, {
      ...inWorker,
      attributes: { "tuft.queue_seconds": (info.duration * queue) / 1e6 },
    });
    add(model, "PREFILL", queue, queue + 0.1, {
      ...inWorker,
      links: [{ trace_id: summary(index - 1).trace_id, span_id: summary(index - 1).root.span_id, attributes: {} }],
    });
    const decode = add(model, "DECODE", queue + 0.1, 0.98, inWorker);
    add(model, "POSTPROCESS", 0.98, 1, inWorker);
    if (big)
      for (let i = 0; i < 4990; i++)
        add(decode, i % 50 ? "engine.step" : "engine.train_pass", i / 4990, (i + r.between(0.5, 0.98)) / 4990, {
          ...inWorker,
          attributes: { "tuft.sequences": r.int(1, 32), "tuft.phase": "decode" },
        });
  } else {
    const run = add(execute, `training_controller.run_${info.operation}`, 0.005, 0.995);
    if (r.next() < 0.5) add(run, "sequence_guard.wait", 0, queue * 0.6);
    const call = add(run, `training_backend.${info.operation}`, queue * 0.6, 0.99, { kind: "client" });
    const model = add(call, `hf_model.${info.operation}`, 0.04, 0.98, {
      ...worker,
      ...failure,
      attributes: {
        "tuft.queue_seconds": (info.duration * queue) / 2e6,
        "tuft.tokens": r.int(2000, 9000),
        "tuft.loss": 1.2,
      },
    });
    if (info.operation.startsWith("forward")) {
      const pass = add(model, "engine.pass", queue, 0.97, {
        ...inWorker,
        links: [
          {
            trace_id: summary(index - 2).trace_id,
            span_id: summary(index - 2).root.span_id,
            attributes: { "tuft.share": 0.4 },
          },
        ],
      });
      add(pass, "engine.forward", 0, 0.36, inWorker);
      if (info.operation === "forward_backward") add(pass, "engine.backward", 0.37, 1, inWorker);
    }
    add(execute, "store.put", 0.995, 0.999);
  }
  const own = info.duration * queue * 0.4;
  const others = info.duration * queue * 0.6;
  const rest = info.duration - own - others;
  const parts =
    info.operation === "sample"
      ? [
          part("queue_others", others, "behind 3 requests of other users"),
          part("prefill", rest * 0.15, "412 tokens of prompt, 256 of them from the prefix cache"),
          part("decode", rest * 0.82, "128 tokens at 9.8 ms each"),
          part("server", rest * 0.03, "in the server"),
        ]
      : [
          part("queue_own", own, "behind 2 earlier operations of this run"),
          part("queue_others", others, "behind passes of other runs"),
          part("forward", rest * 0.35, "forward"),
          part("backward", rest * 0.6, "backward"),
          part("store", rest * 0.02, "writing the result"),
          part("server", rest * 0.03, "in the server"),
        ];
  function part(kind: string, micros: number, text: string) {
    return {
      kind,
      seconds: micros / 1e6,
      share: micros / info.duration,
      text,
      span_id: spans[Math.min(3, spans.length - 1)]!.span_id,
    };
  }
  const leaf = spans.at(-1)!;
  return {
    trace_id: id,
    start: info.start,
    duration: info.duration,
    truncated: false,
    spans,
    logs: [0.02, 0.3, 0.95].map((at, i) =>
      log(Math.floor((info.start + info.duration * at) / logSpacing), {
        time: info.start + info.duration * at,
        trace_id: id,
        span_id: spans[Math.min(i * 2, spans.length - 1)]!.span_id,
      }),
    ),
    linked_from: [
      {
        trace_id: summary(index + 1).trace_id,
        span_id: summary(index + 1).root.span_id,
        name: "GET /api/v1/retrieve_future",
        to_span_id: execute.span_id,
      },
    ],
    critical_path: [
      { span_id: root.span_id, start: root.start, duration: execute.start - root.start },
      { span_id: execute.span_id, start: execute.start, duration: info.duration * 0.02 },
      {
        span_id: spans[3]!.span_id,
        start: execute.start + info.duration * 0.02,
        duration: info.duration * queue * 0.6,
      },
      { span_id: leaf.span_id, start: leaf.start, duration: leaf.duration },
    ],
    explanation: {
      summary: `${Math.round(((own + others) / info.duration) * 100)} % of ${(info.duration / 1e6).toFixed(2)} s passed in the queue, most of it behind work of other users; the rest is the model's work.`,
      parts,
    },
  };
}

// ---- logs

const logSpacing = 60e3;
const events: [string, string, string][] = [
  ["debug", "future.enqueued", "Operation {op} accepted"],
  ["debug", "http.access", "POST /api/v1/{op} 200 in 3 ms"],
  ["debug", "future.completed", "Operation {op} ended after 1.42 s"],
  ["debug", "worker.pass", "Pass of 4 requests, 7301 tokens"],
  ["info", "training.activity", "12 steps, 4310 tokens/s, queue 2"],
  ["info", "session.created", "Session created by SDK 0.38.0"],
  ["info", "checkpoint.saved", "Saved weights/000050, 41.2 MiB in 412 ms"],
  ["warning", "future.failed", "The batch has 9000 tokens; engine.batch_tokens_max is 8192"],
  ["warning", "http.rejected", "Refused: limits.requests_per_second of this user is 50"],
  ["error", "worker.lost", "The worker of Qwen/Qwen3-0.6B closed its connection; it is started again"],
];

export function log(index: number, more: Record<string, unknown> = {}) {
  const r = new Random(index * 13 + 3);
  const roll = r.next();
  const [level, event, body] =
    roll < 0.75
      ? events[r.int(0, 3)]!
      : roll < 0.96
        ? events[r.int(4, 6)]!
        : roll < 0.997
          ? events[r.int(7, 8)]!
          : events[9]!;
  const info = summary(Math.floor((index * logSpacing) / spacing) - 1);
  const inSpan = event !== "session.created" && event !== "worker.lost";
  return {
    time: index * logSpacing + r.between(0, 20e3),
    level,
    event,
    body: body.replace("{op}", info.operation),
    service: "tuft",
    worker: event.startsWith("worker") ? models[0] : "",
    scope: event.split(".")[0],
    user: inSpan ? info.user : null,
    trace_id: inSpan ? info.trace_id : null,
    span_id: inSpan ? info.root.span_id : null,
    attributes: {
      "tuft.operation_type": info.operation,
      "tuft.session_id": info.session,
      "tuft.request_id": info.request,
      "tuft.seconds": Number(r.tail(0.4).toFixed(4)),
    },
    ...more,
  };
}

const levels = ["debug", "info", "warning", "error"];

export function findLogs(q: URLSearchParams, range: { from: number; until: number }) {
  const limit = Math.min(Number(q.get("limit") ?? 100), 1000);
  const least = levels.indexOf(q.get("level") ?? "debug");
  const text = q.get("text")?.toLowerCase();
  const fits = (entry: ReturnType<typeof log>) =>
    levels.indexOf(entry.level) >= least &&
    (!q.get("event") ||
      entry.event === q.get("event") ||
      (q.get("event")!.endsWith("*") && entry.event.startsWith(q.get("event")!.slice(0, -1)))) &&
    (!q.get("user") || entry.user === q.get("user")) &&
    (!q.get("trace") || entry.trace_id === q.get("trace")) &&
    (!q.get("span") || entry.span_id === q.get("span")) &&
    (!q.get("session") || entry.attributes["tuft.session_id"] === q.get("session")) &&
    (!q.get("request") || entry.attributes["tuft.request_id"] === q.get("request")) &&
    (!q.get("operation") || entry.attributes["tuft.operation_type"] === q.get("operation")) &&
    (!text || JSON.stringify(entry).toLowerCase().includes(text));
  const top = Math.floor((now() - 100e3) / logSpacing);
  const after = q.get("after");
  const logs: ReturnType<typeof log>[] = [];
  if (after) {
    let i = Number(after) + 1;
    for (; i <= top && logs.length < limit; i++) if (fits(log(i))) logs.push(log(i));
    return { logs, next: null, newest: String(i - 1) };
  }
  const first = Math.ceil(Math.max(range.from, started) / logSpacing);
  let i = q.get("cursor") ? Number(q.get("cursor")) : Math.min(top, Math.floor(range.until / logSpacing));
  for (; i >= first && logs.length < limit; i--) if (fits(log(i))) logs.push(log(i));
  return { logs, next: i >= first ? String(i) : null, newest: String(top) };
}

export { seedOf };
