// Numbers that look random and are the same at each start.

export class Random {
  constructor(private state: number) {}

  /** In [0, 1). */
  next(): number {
    this.state = (this.state + 0x6d2b79f5) | 0;
    let t = Math.imul(this.state ^ (this.state >>> 15), 1 | this.state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }
  between(low: number, high: number): number {
    return low + this.next() * (high - low);
  }
  int(low: number, high: number): number {
    return Math.floor(this.between(low, high + 1));
  }
  pick<T>(list: readonly T[]): T {
    return list[Math.floor(this.next() * list.length)]!;
  }
  hex(digits: number): string {
    let text = "";
    while (text.length < digits) text += Math.floor(this.next() * 16).toString(16);
    return text;
  }
  /** Long-tailed, with the given median. */
  tail(median: number, spread = 0.7): number {
    const gauss = Math.sqrt(-2 * Math.log(1 - this.next())) * Math.cos(2 * Math.PI * this.next());
    return median * Math.exp(gauss * spread);
  }
}

export function seedOf(text: string): number {
  let hash = 2166136261;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 16777619);
  return hash >>> 0;
}

/** A smooth curve between 0 and 1 over time, different for each seed: slow waves and a little noise. */
export function wave(seed: number, micros: number): number {
  const minutes = micros / 60e6;
  const phase = (seed % 1000) / 7;
  const slow = Math.sin(minutes / 9 + phase) * 0.25 + Math.sin(minutes / 3.1 + phase * 2) * 0.12;
  const noise = new Random(seed ^ Math.floor(micros / 5e6)).next() * 0.16;
  return Math.min(1, Math.max(0, 0.45 + slow + noise));
}
