// What an operator should look at now, from the answers that the overview has anyway.

import type { Overview, StoreState, Tenant } from "../../api/types.ts";
import { formatBytes, formatDuration, formatNumber } from "../../lib/units.ts";

export interface Notice {
  tone: "bad" | "warn";
  text: string;
  to: string;
  params?: Record<string, string>;
  link: string;
}

const stalledMicros = 30e6;

/** The most urgent first. `now` is the server's time. */
export function attention(overview: Overview, store: StoreState | null, tenants: Tenant[], now: number): Notice[] {
  const found: Notice[] = [];
  for (const model of overview.models) {
    const waiting = model.queue.training + model.queue.sampling;
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
    else if (waiting > 0 && model.last_step !== null && now - model.last_step > stalledMicros)
      found.push({
        tone: "bad",
        text: `${model.base_model} has made no step for ${formatDuration(now - model.last_step)} while ${formatNumber(waiting)} operations wait.`,
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
