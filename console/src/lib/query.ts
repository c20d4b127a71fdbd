// The language of the filter bar: `user:alice status:error duration:>2s words`. Each condition becomes a query
// parameter of the same name in the address; everything else is free text.

export interface FilterKey {
  key: string;
  label: string;
  /** Values that are offered. */
  values?: string[];
  /** What a value looks like, shown in the list of suggestions. */
  example?: string;
  /** Durations are typed as "2s" or "350ms", compared by > or <, and stand in the address as microseconds. */
  duration?: boolean;
}

export interface ParsedQuery {
  filters: Record<string, string>;
  text: string;
  problems: string[];
}

/** Splits at blanks outside of double quotes. */
export function splitWords(input: string): string[] {
  const words: string[] = [];
  for (const match of input.matchAll(/(?:[^\s"]|"[^"]*"?)+/g)) words.push(match[0]);
  return words;
}

const unquote = (word: string) => word.replaceAll('"', "");

export function parseQuery(input: string, keys: FilterKey[]): ParsedQuery {
  const result: ParsedQuery = { filters: {}, text: "", problems: [] };
  const text: string[] = [];
  for (const word of splitWords(input)) {
    const colon = /^([a-z_]+)([:=<>])(.*)$/s.exec(word);
    const key = colon && keys.find((candidate) => candidate.key === colon[1]);
    if (!colon || !key) {
      text.push(unquote(word));
      continue;
    }
    const value = unquote(colon[2] === ":" || colon[2] === "=" ? colon[3]! : colon[2] + colon[3]!);
    if (key.duration) addDuration(result, key.key, value);
    else if (value === "") result.problems.push(`${key.key} needs a value.`);
    else if (key.values?.length && key.key === "status" && !key.values.includes(value))
      result.problems.push(`${key.key} is one of ${key.values.join(", ")}.`);
    else result.filters[key.key] = value;
  }
  result.text = text.join(" ");
  return result;
}

function addDuration(result: ParsedQuery, key: string, value: string) {
  const match = /^([<>]?)=?(.+)$/.exec(value);
  const micros = match ? parseDuration(match[2]!) : null;
  if (micros === null) result.problems.push(`${key} is compared with a time: ${key}:>2s or ${key}:<50ms.`);
  else result.filters[match![1] === "<" ? `max_${key}` : `min_${key}`] = String(micros);
}

/** "350ms" -> 350000 microseconds; null: not a duration. A number alone is seconds. */
export function parseDuration(text: string): number | null {
  const match = /^(\d+(?:\.\d+)?)\s*(us|µs|ms|s|m|min|h)?$/.exec(text.trim());
  if (!match) return null;
  const factors: Record<string, number> = { us: 1, µs: 1, ms: 1e3, s: 1e6, m: 60e6, min: 60e6, h: 3600e6 };
  return Math.round(Number(match[1]) * factors[match[2] ?? "s"]!);
}

/** Where a text contains the words that were searched for: [start, end) pairs, without case, not overlapping. */
export function findMatches(body: string, text: string): [number, number][] {
  const needle = text.trim().toLowerCase();
  if (!needle) return [];
  const haystack = body.toLowerCase();
  const found: [number, number][] = [];
  for (
    let at = haystack.indexOf(needle);
    at >= 0 && found.length < 100;
    at = haystack.indexOf(needle, at + needle.length)
  )
    found.push([at, at + needle.length]);
  return found;
}
