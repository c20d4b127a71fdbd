// Made-up traces for tests, benchmarks and the development server: the same numbers each time.

import type { TraceSpan } from "./model.ts";

/** A generator of numbers in [0, 1) that depends on nothing but its seed (mulberry32). */
export function makeRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

export function makeSpan(
  id: string,
  parent: string | null,
  start: number,
  duration: number,
  more: Partial<TraceSpan> = {},
): TraceSpan {
  return {
    span_id: id,
    parent_id: parent,
    name: id,
    service: "tuft",
    worker: "",
    scope: "",
    user: "alice",
    kind: "internal",
    start,
    duration,
    failed: false,
    status_message: "",
    attributes: {},
    events: [],
    links: [],
    ...more,
  };
}

const PHASES = [
  "PREFILL",
  "DECODE",
  "engine.forward",
  "engine.backward",
  "hf_model.optim_step",
  "redis.SET",
  "SCHEDULE",
];

/** A root with requests below it, each with phases, some of which have more below them: `count` spans in all. */
export function makeLargeTrace(count: number, seed = 1): TraceSpan[] {
  const random = makeRandom(seed);
  const origin = 1_790_000_000_000_000;
  const spans: TraceSpan[] = [];
  const id = (n: number) => n.toString(16).padStart(16, "0");
  const total = count * 400;
  spans.push(makeSpan(id(1), null, origin, total, { name: "training loop", service: "my-trainer" }));
  while (spans.length < count) {
    const start = random() * total * 0.98;
    const length = Math.min(total - start, 2_000 + random() * total * 0.01);
    const request = id(spans.length + 1);
    spans.push(makeSpan(request, id(1), origin + start, length, { name: "POST /api/v1/asample", kind: "server" }));
    let at = start;
    const phases = 2 + Math.floor(random() * 8);
    for (let p = 0; p < phases && spans.length < count; ++p) {
      const part = (length / phases) * (0.4 + 0.6 * random());
      const phase = id(spans.length + 1);
      const name = PHASES[Math.floor(random() * PHASES.length)] as string;
      spans.push(makeSpan(phase, request, origin + at, part, { name, worker: "Qwen3-0.6B", failed: random() < 0.002 }));
      let inner = at;
      for (let q = 0; q < 4 && random() < 0.6 && spans.length < count; ++q) {
        const piece = (part / 4) * random();
        spans.push(
          makeSpan(id(spans.length + 1), phase, origin + inner, piece, { name: "engine.step", worker: "Qwen3-0.6B" }),
        );
        inner += part / 4;
      }
      at += length / phases;
    }
  }
  return spans.sort((a, b) => a.start - b.start);
}
