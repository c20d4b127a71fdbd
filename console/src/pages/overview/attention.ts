// What an operator should look at now, from the answers that the overview has anyway.

import type { Overview, StoreState, Tenant, Worker } from "../../api/types.ts";
import { Samples } from "../../lib/samples.ts";
import { formatBytes, formatNumber, formatSeconds } from "../../lib/units.ts";

export interface Notice {
  tone: "bad" | "warn";
  text: string;
  to: string;
  params?: Record<string, string>;
  link: string;
}

const stalledSeconds = 30;

/** The most urgent first. */
export function attention(
  overview: Overview,
  workers: Worker[],
  store: StoreState | null,
  tenants: Tenant[],
): Notice[] {
  const found: Notice[] = [];
  for (const model of overview.models) {
    if (model.state === "dead")
      found.push({
        tone: "bad",
        text: `The worker of ${model.base_model} is dead.`,
        to: "/logs",
        params: { level: "error" },
        link: "Errors in the log",
      });
    else if (model.state !== "ready")
      found.push({
        tone: "warn",
        text: `The worker of ${model.base_model} is ${model.state}.`,
        to: "/system",
        link: "Workers",
      });
  }
  for (const worker of workers) {
    // It is 0 while the engine has nothing to do. What is wrong with a worker that is not ready is said above.
    const age = new Samples(worker.metrics).sum("tuft.scheduler.last_step.age") ?? 0;
    if (worker.state === "ready" && age > stalledSeconds)
      found.push({
        tone: "bad",
        text: `The engine of ${worker.base_model} has work and has made no step for ${formatSeconds(age)}.`,
        to: "/system",
        link: "Workers",
      });
  }
  if (store?.problem)
    found.push({
      tone: "bad",
      text: `Telemetry is not kept on disk: ${store.problem}`,
      to: "/system",
      link: "Telemetry store",
    });
  if (store && store.dropped_records > 0)
    found.push({
      tone: "warn",
      text: `${formatNumber(store.dropped_records)} telemetry records were lost before they were stored.`,
      to: "/metrics",
      params: { board: "telemetry" },
      link: "Telemetry's health",
    });
  for (const tenant of tenants)
    for (const quota of tenant.quotas) {
      if (!quota.max || quota.used < quota.max * 0.95) continue;
      const bytes = quota.limit.includes("bytes");
      const show = bytes ? formatBytes : formatNumber;
      found.push({
        tone: "warn",
        text: `${tenant.user} has used ${show(quota.used)} of ${show(quota.max)} (${quota.limit}).`,
        to: "/tenants",
        params: { user: tenant.user },
        link: "Quotas",
      });
    }
  return found.sort((a, b) => Number(b.tone === "bad") - Number(a.tone === "bad"));
}
