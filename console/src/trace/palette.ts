// What colour a span has. By default it tells the kind of work, so that a trace can be read without its names; the same
// kinds, colours and order are used for the parts of an explanation and for the parts of a step's time.
//
// The hues are those of Okabe and Ito, which people with any of the common colour deficiencies tell apart, made a little
// lighter or darker for each background. A failed span is marked by a shape too, never by its colour alone.

import type { TraceSpan } from "./model.ts";

export type WorkKind =
  | "queue"
  | "server"
  | "prefill"
  | "decode"
  | "forward"
  | "backward"
  | "optimizer"
  | "save"
  | "store"
  | "network"
  | "client"
  | "other";

export type ColourBy = "kind" | "service" | "worker" | "name";
export type Theme = "light" | "dark";

export const WORK_KINDS: readonly WorkKind[] = [
  "queue",
  "server",
  "prefill",
  "decode",
  "forward",
  "backward",
  "optimizer",
  "save",
  "store",
  "network",
  "client",
  "other",
];

export const WORK_WORDS: Readonly<Record<WorkKind, string>> = {
  queue: "waiting",
  server: "server",
  prefill: "prefill",
  decode: "decode",
  forward: "forward",
  backward: "backward",
  optimizer: "optimizer",
  save: "saving, loading",
  store: "state store",
  network: "network",
  client: "the user's program",
  other: "other",
};

interface Swatch {
  readonly light: string;
  readonly dark: string;
}

const GREY: Swatch = { light: "#8a93a0", dark: "#8b95a5" };
const HUES: readonly Swatch[] = [
  { light: "#2f86c1", dark: "#56b4e9" }, // sky blue
  { light: "#e69f00", dark: "#e8a917" }, // orange
  { light: "#009e73", dark: "#1fb58a" }, // green
  { light: "#cc6fa3", dark: "#d98bb9" }, // purple
  { light: "#d55e00", dark: "#e8743b" }, // vermilion
  { light: "#0a5ea8", dark: "#6f8ff0" }, // blue
  { light: "#b8a500", dark: "#f0e442" }, // yellow
  { light: "#6b5b95", dark: "#a594d6" }, // violet
  { light: "#4d7c8a", dark: "#79aebd" }, // slate
];

const WORK_COLOURS: Readonly<Record<WorkKind, Swatch>> = {
  queue: { light: "#c9ced6", dark: "#566173" },
  server: HUES[8] as Swatch,
  prefill: HUES[1] as Swatch,
  decode: HUES[2] as Swatch,
  forward: HUES[0] as Swatch,
  backward: HUES[5] as Swatch,
  optimizer: HUES[3] as Swatch,
  save: HUES[7] as Swatch,
  store: HUES[6] as Swatch,
  network: HUES[4] as Swatch,
  client: { light: "#a3785a", dark: "#c49a7a" },
  other: GREY,
};

export function workColour(kind: WorkKind, theme: Theme): string {
  return WORK_COLOURS[kind][theme];
}

/** The colour of the n-th of several things that are compared: series, runs, traces. */
export function seriesColour(n: number, theme: Theme): string {
  return (HUES[n % HUES.length] as Swatch)[theme];
}

const RULES: readonly (readonly [RegExp, WorkKind])[] = [
  [/^SCHEDULE$|queue|wait/i, "queue"],
  [/^PREFILL$|prefill/i, "prefill"],
  [/^DECODE$|decode|engine\.step|sample$/i, "decode"],
  // A pass that several requests share has forward and backward in one span.
  [/backward$|^engine\.(train_)?pass$/i, "backward"],
  [/forward$/i, "forward"],
  [/optim/i, "optimizer"],
  [/save|load_|publish|checkpoint|add_adapter|create_adapter|page_in|page_out|archive/i, "save"],
  [/^redis\.|^sqlite|^file_store|persistence|store\.|^db\./i, "store"],
];

const SERVER_RULE =
  /^(GET|POST|PUT|DELETE|PATCH|HEAD) |controller|backend|future_store|^(?:http|work|scheduler|engine)\(|PREPROCESS|POSTPROCESS|^oai\./;

/** The kind of work that a span stands for, by its name, its kind and where it ran. */
export function workKind(span: Pick<TraceSpan, "name" | "kind" | "service">): WorkKind {
  // What surrounds the work in the server would be taken for the work by its name.
  if (SERVER_RULE.test(span.name)) return "server";
  for (const [pattern, kind] of RULES) {
    if (pattern.test(span.name)) return kind;
  }
  if (span.service !== "" && !span.service.startsWith("tuft")) return "client";
  if (span.kind === "server") return "server";
  if (span.kind === "client") return "network";
  return "other";
}

/** The kind of work of a part of the server's explanation. */
export function partKind(kind: string): WorkKind {
  switch (kind) {
    case "queue_own":
    case "queue_others":
    case "sequence":
    case "schedule":
    case "queue":
    case "waiting":
    case "wait":
      return "queue";
    case "passes":
      return "forward";
    case "saving":
    case "paging":
      return "save";
    case "idle":
      return "other";
    default:
      return (WORK_KINDS as readonly string[]).includes(kind) ? (kind as WorkKind) : "other";
  }
}

/** A number that depends on nothing but the text (FNV-1a). */
export function hashText(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; ++i) {
    hash ^= text.charCodeAt(i);
    hash = Math.imul(hash, 0x01000193);
  }
  return hash >>> 0;
}

/** The colour of each span; computed once, so that drawing looks nothing up. */
export function colourSpans(spans: readonly TraceSpan[], by: ColourBy, theme: Theme): string[] {
  if (by === "kind") return spans.map((span) => workColour(workKind(span), theme));
  const key = (span: TraceSpan) =>
    by === "service" ? span.service : by === "worker" ? span.worker : plainName(span.name);
  return spans.map((span) => seriesColour(hashText(key(span)), theme));
}

/** A name without what differs from one process and thread to the next: `http(host:db8e | pid:411)` is `http(…)`. */
export function plainName(name: string): string {
  return name
    .replace(/\((?:TP|DP|host|pid)[^)]*\)/g, "(…)")
    .replace(/\b0x[0-9a-f]{2,}\b/gi, "…")
    .replace(/\b[0-9a-f]{8}-[0-9a-f-]{27}\b/gi, "…")
    .replace(/ Req \S+$/, " Req …");
}

/** Black or white, whichever is read more easily on a colour `#rrggbb`. */
export function inkOn(colour: string): string {
  const channel = (from: number) => {
    const value = Number.parseInt(colour.slice(from, from + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  };
  const luminance = 0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5);
  return luminance > 0.179 ? "#0b0f14" : "#ffffff";
}
