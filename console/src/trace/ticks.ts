// The ticks of a time axis and their labels: round steps of 1, 2 or 5, and one unit for all labels of an axis.

export interface Tick {
  readonly time: number;
  readonly label: string;
}

const UNITS = [
  { name: "µs", us: 1 },
  { name: "ms", us: 1e3 },
  { name: "s", us: 1e6 },
] as const;

/** The smallest round step that is at least `step`, in microseconds: 1, 2 or 5 times a power of ten. */
export function roundStep(step: number): number {
  if (!(step > 0) || !Number.isFinite(step)) return 1;
  const power = 10 ** Math.floor(Math.log10(step));
  for (const factor of [1, 2, 5]) {
    if (factor * power >= step * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

/** Ticks between two times, at least `spacing` pixels apart on an axis of `width` pixels. */
export function timeTicks(from: number, to: number, width: number, spacing = 90): Tick[] {
  if (!(to > from) || width <= 0) return [];
  const step = roundStep(((to - from) * spacing) / width);
  const largest = Math.max(Math.abs(from), Math.abs(to));
  let unit: (typeof UNITS)[number] = UNITS[0];
  for (const candidate of UNITS) {
    if (largest >= candidate.us * 0.999) unit = candidate;
  }
  const digits = Math.min(6, Math.max(0, -Math.floor(Math.log10(step / unit.us) + 1e-9)));
  const ticks: Tick[] = [];
  const first = Math.ceil(from / step - 1e-9);
  for (let k = first; k * step <= to * (1 + 1e-12); ++k) {
    ticks.push({ time: k * step, label: k === 0 ? "0" : `${((k * step) / unit.us).toFixed(digits)} ${unit.name}` });
    if (ticks.length > 200) break;
  }
  return ticks;
}
