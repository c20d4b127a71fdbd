// The histogram of durations: which buckets are worth showing, and what an interval of them asks for.

import type { DurationHistogram } from "../../api/types.ts";

export interface Bucket {
  /** Microseconds. null: without a bound. */
  readonly from: number;
  readonly to: number | null;
  readonly count: number;
  readonly failed: number;
}

/** The buckets from the first to the last that holds something, with one empty one at each side. */
export function bucketsOf(answer: DurationHistogram): Bucket[] {
  const all = answer.counts.map((count, i) => ({
    from: i === 0 ? 0 : (answer.bounds[i - 1] ?? 0),
    to: answer.bounds[i] ?? null,
    count,
    failed: answer.failed[i] ?? 0,
  }));
  const first = all.findIndex((bucket) => bucket.count > 0);
  if (first < 0) return [];
  let last = all.length - 1;
  while ((all[last]?.count ?? 0) === 0) --last;
  return all.slice(Math.max(0, first - 1), Math.min(all.length, last + 2));
}

/** The filter that an interval of buckets means; null for a side without a bound. */
export function intervalOf(
  buckets: readonly Bucket[],
  a: number,
  b: number,
): { min: number | null; max: number | null } {
  const first = buckets[Math.min(a, b)];
  const last = buckets[Math.max(a, b)];
  return { min: first && first.from > 0 ? Math.floor(first.from) : null, max: last?.to ? Math.ceil(last.to) : null };
}

/** Whether the filter lets a bucket through. */
export function isInside(bucket: Bucket, min: number | null, max: number | null): boolean {
  if (min !== null && (bucket.to ?? Number.POSITIVE_INFINITY) <= min) return false;
  return max === null || bucket.from < max;
}

/** The height of a bar in percent: the square root, so that a single slow request is seen beside a thousand fast ones. */
export function barHeight(count: number, largest: number): number {
  if (count <= 0 || largest <= 0) return 0;
  return Math.max(4, Math.sqrt(count / largest) * 100);
}
