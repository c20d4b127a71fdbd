// Points in time, in microseconds since the epoch, and ranges of them as they stand in an address.

import { formatDuration } from "./units.ts";

/** What a query asks for: microseconds since the epoch as text, or relative to now ("-15m"); `until` may be "". */
export interface RangeText {
  from: string;
  until: string;
}

export interface Range {
  from: number;
  until: number;
}

export const defaultRange: RangeText = { from: "-1h", until: "" };

export const presets: { from: string; label: string }[] = [
  { from: "-5m", label: "5 minutes" },
  { from: "-15m", label: "15 minutes" },
  { from: "-1h", label: "1 hour" },
  { from: "-3h", label: "3 hours" },
  { from: "-6h", label: "6 hours" },
  { from: "-12h", label: "12 hours" },
  { from: "-24h", label: "24 hours" },
  { from: "-7d", label: "7 days" },
];

const unitMicros: Record<string, number> = { s: 1e6, m: 60e6, h: 3600e6, d: 86400e6 };

/** "-15m" -> microseconds before now; null: the text is none. */
export function parseRelative(text: string): number | null {
  const match = /^-(\d{1,9})([smhd])$/.exec(text);
  return match ? Number(match[1]) * unitMicros[match[2]!]! : null;
}

export function isValidWhen(text: string): boolean {
  return parseRelative(text) !== null || /^\d{1,17}(\.\d+)?$/.test(text);
}

export function isRelative(range: RangeText): boolean {
  return range.until === "" && parseRelative(range.from) !== null;
}

/** `now` in microseconds. A text that is no time counts as the default's. */
export function resolveRange(range: RangeText, now: number): Range {
  const point = (text: string, fallback: number) => {
    const ago = parseRelative(text);
    if (ago !== null) return now - ago;
    return isValidWhen(text) ? Number(text) : fallback;
  };
  const from = point(range.from, now - unitMicros["h"]!);
  const until = range.until === "" ? now : point(range.until, now);
  return from < until ? { from, until } : { from: until, until: from };
}

export function describeRange(range: RangeText): string {
  if (isRelative(range)) {
    const preset = presets.find((candidate) => candidate.from === range.from);
    return `Last ${preset ? preset.label : formatDuration(parseRelative(range.from))}`;
  }
  const { from, until } = resolveRange(range, nowMicros());
  return `${formatShort(from)} – ${sameDay(from, until) ? formatClock(until) : formatShort(until)}`;
}

export const nowMicros = (): number => Date.now() * 1000;

const two = (value: number) => String(value).padStart(2, "0");
const dateOf = (micros: number) => new Date(micros / 1000);

function sameDay(a: number, b: number): boolean {
  return dateOf(a).toDateString() === dateOf(b).toDateString();
}

/** "14:03:22". */
export function formatClock(micros: number): string {
  const date = dateOf(micros);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** "14:03:22.041". */
export function formatClockMillis(micros: number): string {
  return `${formatClock(micros)}.${String(dateOf(micros).getMilliseconds()).padStart(3, "0")}`;
}

/** "2026-11-25". */
export function formatDay(micros: number): string {
  const date = dateOf(micros);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

/** "11-25 14:03:22", in local time. */
function formatShort(micros: number): string {
  return `${formatDay(micros).slice(5)} ${formatClock(micros)}`;
}

/** "2026-11-25 14:03:22.041 UTC+01:00 (Europe/Berlin)". */
export function formatAbsolute(micros: number): string {
  return `${formatDay(micros)} ${formatClockMillis(micros)} ${zoneOf(micros)}`;
}

/** "UTC+01:00 (Europe/Berlin)". */
export function zoneOf(micros: number = nowMicros()): string {
  const minutes = -dateOf(micros).getTimezoneOffset();
  const size = Math.abs(minutes);
  const offset = minutes === 0 ? "UTC" : `UTC${minutes < 0 ? "−" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return name && name !== "UTC" ? `${offset} (${name})` : offset;
}

/** "just now", "12 s ago", "3 min ago", "2 h ago", "5 d ago", "in 3 d". */
export function formatRelative(micros: number, now: number): string {
  const ago = now - micros;
  const size = Math.abs(ago);
  if (size < 1.5e6) return "just now";
  const [unit, factor] =
    size < 59.5e6
      ? ["s", 1e6]
      : size < 59.5 * 60e6
        ? ["min", 60e6]
        : size < 47.5 * 3600e6
          ? ["h", 3600e6]
          : ["d", 86400e6];
  const text = `${Math.round(size / (factor as number))} ${unit}`;
  return ago > 0 ? `${text} ago` : `in ${text}`;
}

/** A step of about `width` / `points`, on a round number of seconds. */
export function stepFor(range: Range, points: number): number {
  const rough = (range.until - range.from) / points;
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400];
  return (steps.find((seconds) => seconds * 1e6 >= rough) ?? 86400) * 1e6;
}

/** The value of <input type="datetime-local"> in local time, and back. */
export function toInputTime(micros: number): string {
  return `${formatDay(micros)}T${formatClock(micros)}`;
}

export function fromInputTime(text: string): number | null {
  const millis = new Date(text).getTime();
  return Number.isFinite(millis) ? millis * 1000 : null;
}
