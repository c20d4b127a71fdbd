// Numbers with units, as a reader wants them: three significant digits, one prefix for a whole axis.
//
// Durations are microseconds, as in the API. Units of metrics are those of the catalogue (UCUM and TuFT's own words).

const missing = "–";

function isNumber(value: number | null | undefined): value is number {
  return value !== null && value !== undefined && Number.isFinite(value);
}

function significant(value: number, digits = 3): string {
  if (value === 0) return "0";
  const magnitude = Math.floor(Math.log10(Math.abs(value)));
  const decimals = Math.min(Math.max(digits - 1 - magnitude, 0), 6);
  const text = value.toFixed(decimals);
  return decimals > 0 ? text.replace(/\.?0+$/, "") : text;
}

/** 1234567 -> "1,234,567"; fractions keep three significant digits. */
export function formatNumber(value: number | null | undefined): string {
  if (!isNumber(value)) return missing;
  if (Math.abs(value) >= 1000 || Number.isInteger(value)) return Math.round(value).toLocaleString("en-US");
  if (value !== 0 && Math.abs(value) < 1e-4) return value.toExponential(2).replace("e-", "e−");
  return significant(value).replace(/^-/, "−");
}

/** 1234567 -> "1.23 M". */
export function formatCount(value: number | null | undefined): string {
  if (!isNumber(value)) return missing;
  if (Math.abs(value) < 999.5) return formatNumber(value);
  const { factor, prefix } = prefixOf(Math.abs(value));
  return `${significant(value / factor).replace(/^-/, "−")} ${prefix}`;
}

function prefixOf(value: number): { factor: number; prefix: string } {
  if (value >= 999.5e15) return { factor: 1e18, prefix: "E" };
  if (value >= 999.5e12) return { factor: 1e15, prefix: "P" };
  if (value >= 999.5e9) return { factor: 1e12, prefix: "T" };
  if (value >= 999.5e6) return { factor: 1e9, prefix: "G" };
  if (value >= 999.5e3) return { factor: 1e6, prefix: "M" };
  if (value >= 999.5) return { factor: 1e3, prefix: "k" };
  return { factor: 1, prefix: "" };
}

const byteUnits = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function formatBytes(value: number | null | undefined): string {
  if (!isNumber(value)) return missing;
  const power = bytePower(Math.abs(value));
  return `${significant(value / 1024 ** power)} ${byteUnits[power]}`;
}

function bytePower(value: number): number {
  if (value < 1) return 0;
  return Math.min(Math.floor(Math.log(value * 1.0005) / Math.log(1024)), byteUnits.length - 1);
}

/** 0.123 -> "12.3 %". */
export function formatShare(value: number | null | undefined): string {
  if (!isNumber(value)) return missing;
  const percent = value * 100;
  if (percent !== 0 && Math.abs(percent) < 0.1) return "< 0.1 %";
  return `${Math.abs(percent) >= 99.95 ? Math.round(percent) : Number(percent.toFixed(1))} %`;
}

/** Microseconds -> "850 µs", "12.3 ms", "1.24 s", "2 min 5 s", "3 h 12 min", "2 d 4 h". */
export function formatDuration(micros: number | null | undefined): string {
  if (!isNumber(micros)) return missing;
  const sign = micros < 0 ? "−" : "";
  const value = Math.abs(micros);
  if (value === 0) return "0 s";
  if (value < 1) return `${sign}${significant(value * 1000, 2)} ns`;
  if (value < 999.5) return `${sign}${significant(value)} µs`;
  if (value < 999_500) return `${sign}${significant(value / 1000)} ms`;
  if (value < 59_950_000) return `${sign}${significant(value / 1e6)} s`;
  return sign + longDuration(Math.round(value / 1e6));
}

function longDuration(seconds: number): string {
  const pair = (large: number, largeUnit: string, small: number, smallUnit: string) =>
    small === 0 ? `${large} ${largeUnit}` : `${large} ${largeUnit} ${small} ${smallUnit}`;
  if (seconds < 3600) return pair(Math.floor(seconds / 60), "min", seconds % 60, "s");
  const minutes = Math.round(seconds / 60);
  if (minutes < 24 * 60) return pair(Math.floor(minutes / 60), "h", minutes % 60, "min");
  const hours = Math.round(seconds / 3600);
  return pair(Math.floor(hours / 24), "d", hours % 24, "h");
}

export const formatSeconds = (seconds: number | null | undefined): string =>
  formatDuration(isNumber(seconds) ? seconds * 1e6 : null);

/** What a unit of the catalogue measures; decides how its values are shown. */
export type Dimension = "seconds" | "milliseconds" | "bytes" | "share" | "percent" | "number";

export function dimensionOf(unit: string): Dimension {
  switch (unit) {
    case "s":
      return "seconds";
    case "ms":
      return "milliseconds";
    case "By":
    case "bytes":
      return "bytes";
    case "1":
    case "ratio":
      return "share";
    case "%":
    case "percent":
      return "percent";
    default:
      return "number";
  }
}

/** "{request}" -> "requests", "Cel" -> "°C"; "" where a unit needs no word. */
export function unitWord(unit: string): string {
  const words: Record<string, string> = { Cel: "°C", W: "W", J: "J", "tokens/s": "tokens/s", "{flop}/s": "FLOP/s" };
  if (words[unit] !== undefined) return words[unit];
  const annotation = /^\{(.+)\}$/.exec(unit);
  if (annotation) {
    const word = annotation[1]!.replaceAll("_", " ");
    if (word === "flop") return "FLOP";
    return plural(word);
  }
  return dimensionOf(unit) === "number" ? unit : "";
}

function plural(word: string): string {
  if (/[^aeiou]y$/.test(word)) return `${word.slice(0, -1)}ies`;
  if (/(s|ch|x)$/.test(word)) return `${word}es`;
  return `${word}s`;
}

export interface Quantity {
  unit: string;
  /** The values are per second: of a counter's rate. */
  perSecond?: boolean;
  /** A ratio of 1 that is no share of something, such as a gradient's norm. */
  plain?: boolean;
}

/** One value with its unit. */
export function formatQuantity(value: number | null | undefined, quantity: Quantity): string {
  if (!isNumber(value)) return missing;
  const suffix = quantity.perSecond ? "/s" : "";
  switch (quantity.plain ? "number" : dimensionOf(quantity.unit)) {
    case "seconds":
      // Seconds per second are processors in use, or a share of time.
      return quantity.perSecond ? formatNumber(value) : formatDuration(value * 1e6);
    case "milliseconds":
      return formatDuration(value * 1e3) + suffix;
    case "bytes":
      return formatBytes(value) + suffix;
    case "share":
      return formatShare(value) + suffix;
    case "percent":
      return formatShare(value / 100) + suffix;
    case "number": {
      const word = quantity.plain ? "" : unitWord(quantity.unit);
      const joined = word.endsWith("/s") ? word : word + suffix;
      const number = formatCount(value);
      if (!joined) return number;
      return joined.startsWith("/") || /[kMGTPE]$/.test(number)
        ? number + joinPrefix(number, joined)
        : `${number} ${joined}`;
    }
  }
}

/** What values count, for the head of a chart: "tokens/s", "requests"; "" for durations, bytes and shares. */
export function quantityWord(quantity: Quantity): string {
  if (quantity.plain || dimensionOf(quantity.unit) !== "number") return "";
  const word = unitWord(quantity.unit);
  if (word.endsWith("/s") || !quantity.perSecond) return word;
  return word ? `${word}/s` : "per second";
}

/** A value without the word for what it counts, where a heading says that. */
export function formatShort(value: number | null | undefined, quantity: Quantity): string {
  return quantity.plain || dimensionOf(quantity.unit) === "number"
    ? formatCount(value)
    : formatQuantity(value, quantity);
}

function joinPrefix(number: string, unit: string): string {
  return /^(FLOP|W|J)/.test(unit) && /[kMGTPE]$/.test(number) ? unit : unit.startsWith("/") ? unit : ` ${unit}`;
}

/** A scale that all labels of an axis share: label = value / factor, followed by the suffix. */
export interface Scale {
  factor: number;
  suffix: string;
}

export function scaleOf(largest: number, quantity: Quantity): Scale {
  const value = Number.isFinite(largest) ? Math.abs(largest) : 0;
  const rate = quantity.perSecond ? "/s" : "";
  switch (quantity.plain ? "number" : dimensionOf(quantity.unit)) {
    case "seconds":
      return quantity.perSecond ? { factor: 1, suffix: "" } : secondsScale(value);
    case "milliseconds": {
      const scale = secondsScale(value / 1000);
      return { factor: scale.factor * 1000, suffix: scale.suffix + rate };
    }
    case "bytes": {
      const power = bytePower(value);
      return { factor: 1024 ** power, suffix: byteUnits[power] + rate };
    }
    case "share":
      return { factor: 0.01, suffix: "%" };
    case "percent":
      return { factor: 1, suffix: "%" };
    case "number": {
      const { factor, prefix } = prefixOf(value);
      return { factor, suffix: prefix };
    }
  }
}

function secondsScale(seconds: number): Scale {
  if (seconds >= 7200) return { factor: 3600, suffix: "h" };
  if (seconds >= 120) return { factor: 60, suffix: "min" };
  if (seconds >= 0.9995) return { factor: 1, suffix: "s" };
  if (seconds >= 0.0009995 || seconds === 0) return { factor: 1e-3, suffix: "ms" };
  return { factor: 1e-6, suffix: "µs" };
}

/** A label of an axis: the decimals follow the distance of the ticks, so that neighbours never read the same. */
export function formatTick(value: number, scale: Scale, distance: number): string {
  const scaled = value / scale.factor;
  const step = Math.abs(distance / scale.factor);
  if (scaled === 0) return "0";
  let decimals = 0;
  while (
    decimals < 6 &&
    Math.abs(step * 10 ** decimals - Math.round(step * 10 ** decimals)) > 1e-6 * step * 10 ** decimals
  )
    decimals++;
  const number = scaled.toFixed(decimals).replace(/^-/, "−");
  return scale.suffix ? `${number} ${scale.suffix}` : number;
}
