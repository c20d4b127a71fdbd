// Which metrics the server has, so that a panel does not ask for one that nobody has recorded yet.

import { getJson, observe, who } from "./client.ts";
import type { MetricCatalogue } from "./types.ts";

const againAfter = 15_000;

let names: ReadonlySet<string> = new Set();
let user: string | undefined;
let asked = Number.NEGATIVE_INFINITY;
let answer: Promise<void> = Promise.resolve();

async function ask() {
  const list = await getJson<MetricCatalogue>(observe("/metrics"));
  names = new Set(list.metrics.map((metric) => metric.name));
}

/** Whether the server has this metric. The list is asked for again, but not often, while it has not. */
export async function isRecorded(name: string): Promise<boolean> {
  // Another user may see other metrics.
  if (user !== who.peek()?.user) {
    user = who.peek()?.user;
    names = new Set();
    asked = Number.NEGATIVE_INFINITY;
  }
  if (!names.has(name) && performance.now() - asked > againAfter) {
    asked = performance.now();
    answer = ask();
    // A failure is told by those that wait for it; later ones ask again.
    answer.catch(() => {
      asked = Number.NEGATIVE_INFINITY;
    });
  }
  if (!names.has(name)) await answer;
  return names.has(name);
}
