// The address is the state: its path names the page, its query holds filters, time range and selection.

import { signal } from "@preact/signals";
import { type Params, pageHref, pathOf, withParams } from "../lib/url.ts";

const here = typeof location === "undefined" ? { pathname: "/console/", search: "" } : location;

/** The path below /console. */
export const path = signal(pathOf(here.pathname));
/** The query with its "?", or "". */
export const search = signal(here.search);

function follow() {
  path.value = pathOf(location.pathname);
  search.value = location.search;
}
if (typeof window !== "undefined") window.addEventListener("popstate", follow);

/** Goes to an address within the console (with /console). */
export function go(href: string, replace = false) {
  if (href === location.pathname + location.search) return;
  if (replace) history.replaceState(null, "", href);
  else history.pushState(null, "", href);
  const moved = pathOf(location.pathname) !== path.peek();
  follow();
  if (moved) {
    window.scrollTo(0, 0);
    document.getElementById("main")?.focus({ preventScroll: true });
  }
}

/** The address of a page, with the time range of this one. */
export const href = (page: string, params: Params = {}): string => pageHref(page, search.value, params);

export function navigate(page: string, params: Params = {}, replace = false) {
  go(pageHref(page, search.peek(), params), replace);
}

/** Changes parameters of this page; null and "" remove one. `replace`: the step is not one for the back button. */
export function setParams(changes: Params, replace = false) {
  go(location.pathname + withParams(location.search, changes), replace);
}

/** A parameter of the address, "" if it is absent, and a setter that replaces the address. */
export function useParam(key: string, fallback = ""): [string, (value: string | null) => void] {
  const value = new URLSearchParams(search.value).get(key) ?? fallback;
  return [value, (next) => setParams({ [key]: next === fallback ? null : next }, true)];
}

/** One of a closed set of words; another word in the address counts as the fallback. */
export function useChoice<T extends string>(key: string, choices: readonly T[], fallback: T): [T, (value: T) => void] {
  const [value, set] = useParam(key, fallback);
  return [choices.includes(value as T) ? (value as T) : fallback, set];
}

/** A list of words, separated by commas in the address. */
export function useList(key: string): [string[], (value: string[]) => void] {
  const [value, set] = useParam(key);
  return [value ? value.split(",") : [], (next) => set(next.join(","))];
}

export function useNumber(key: string, fallback: number): [number, (value: number) => void] {
  const [value, set] = useParam(key, String(fallback));
  const number = Number(value);
  return [Number.isFinite(number) ? number : fallback, (next) => set(String(next))];
}

/** Several parameters at once: those of `keys` that the address has. */
export function useParams(keys: readonly string[]): Record<string, string> {
  const params = new URLSearchParams(search.value);
  const found: Record<string, string> = {};
  for (const key of keys) {
    const value = params.get(key);
    if (value) found[key] = value;
  }
  return found;
}
