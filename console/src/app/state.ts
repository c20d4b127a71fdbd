// What the whole console shares: the look, whether it is live, the range of time.

import { computed, effect, signal } from "@preact/signals";
import { clockOffset } from "../api/client.ts";
import { defaultRange, isRelative, nowMicros, type Range, type RangeText, resolveRange } from "../lib/time.ts";
import { navigate, search, setParams } from "./router.ts";

export type Theme = "auto" | "light" | "dark";

function stored(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null; // Storage may be forbidden; then nothing is remembered.
  }
}

export function store(key: string, value: string) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // See above.
  }
}
export { stored };

const savedTheme = stored("tuft.theme");
export const theme = signal<Theme>(savedTheme === "light" || savedTheme === "dark" ? savedTheme : "auto");
const systemDark = typeof matchMedia === "undefined" ? null : matchMedia("(prefers-color-scheme: dark)");
const systemIsDark = signal(systemDark?.matches ?? false);
systemDark?.addEventListener("change", (event) => {
  systemIsDark.value = event.matches;
});
/** Whether the console is dark now. Canvases read it, to be drawn again when it changes. */
export const dark = computed(() => (theme.value === "auto" ? systemIsDark.value : theme.value === "dark"));

effect(() => {
  if (typeof document === "undefined") return;
  if (theme.value === "auto") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme.value;
  store("tuft.theme", theme.value);
});

/** Whether views refresh themselves: `live=0` in the address, or a range that ended, pauses them. */
export const live = computed(() => new URLSearchParams(search.value).get("live") !== "0" && isRelative(range.value));

export const range = computed<RangeText>(() => {
  const params = new URLSearchParams(search.value);
  return { from: params.get("from") || defaultRange.from, until: params.get("until") || "" };
});

/** The server's time, in microseconds. */
export const serverNow = (): number => nowMicros() + clockOffset.peek();

/** The range in microseconds, as of now. */
export const resolvedRange = (): Range => resolveRange(range.value, serverNow());

export function setRange(next: RangeText) {
  setParams({
    from: next.from === defaultRange.from && next.until === "" ? null : next.from,
    until: next.until || null,
    live: null,
  });
}

/** Narrows the views to what was brushed over in a chart. */
export function setAbsoluteRange(from: number, until: number) {
  setRange({ from: String(Math.floor(from)), until: String(Math.ceil(until)) });
}

export function toggleLive() {
  const params = new URLSearchParams(search.value);
  if (!isRelative(range.value)) setRange(defaultRange);
  else setParams({ live: params.get("live") === "0" ? null : "0" }, true);
}

/** A clock for ages, which ticks each second while somebody looks. */
export const tick = signal(0);
if (typeof document !== "undefined")
  setInterval(() => {
    if (!document.hidden) tick.value++;
  }, 1000);

export { navigate };
