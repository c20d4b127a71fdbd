// What was shared in the last passes: how many requests, runs and adapters stood in one, and the newest of them.

import { observe } from "../../api/client.ts";
import type { Attributes, Trace, TracePage } from "../../api/types.ts";
import { useApi, useApis } from "../../api/use_api.ts";
import type { Panel } from "../../lib/panels.ts";
import { formatNumber } from "../../lib/units.ts";
import { Card, Duration, Empty, ErrorBox, Link, Skeleton, Time } from "../../ui/basics.tsx";
import { PanelCard } from "../../ui/panel.tsx";

const two = (metric: string): Panel["queries"] => [
  { metric, fn: "p50", label: "p50" },
  { metric, fn: "p95", label: "p95" },
];
const panels: Panel[] = [
  { id: "p-requests", title: "Requests in a training pass", queries: two("tuft.training.batch.requests") },
  {
    id: "p-runs",
    title: "Runs in a training pass or step",
    queries: [{ metric: "tuft.training.batch.runs", fn: "p95", by: ["phase"] }],
  },
  { id: "p-fill", title: "Fill of training passes", queries: two("tuft.training.batch.fill") },
  {
    id: "p-sequences",
    title: "Sequences in a sampling step",
    queries: [{ metric: "tuft.scheduler.batch.requests", fn: "p95", by: ["phase"] }],
  },
  { id: "p-adapters", title: "Adapters in one step", queries: two("tuft.scheduler.batch.adapters") },
  {
    id: "p-deficit",
    title: "Most tokens that a run is behind",
    queries: [{ metric: "tuft.scheduler.fairness.deficit.max", fn: "max", by: ["worker"] }],
  },
];

const names = {
  "engine.train_pass": "training pass",
  "engine.optim_pass": "optimizer step",
  "engine.step": "sampling step",
} as const;

export function SharedPasses() {
  const paths = Object.keys(names).map((name) => observe("/traces", { name, limit: 4, from: "-1h" }));
  const lists = useApis<TracePage>(paths, { every: 5000 });
  const traces = (lists.data ?? []).flatMap((page) => page.traces).sort((a, b) => b.start - a.start);
  return (
    <>
      <Card title="The last passes">
        {lists.error && !lists.data ? (
          <ErrorBox error={lists.error} retry={lists.reload} />
        ) : !lists.data ? (
          <Skeleton height={120} />
        ) : traces.length === 0 ? (
          <Empty title="No shared pass in the last hour">
            <p>
              A pass is shared when datums of several requests are computed together. Training passes and one step of
              the sampler in 128 are recorded.
            </p>
          </Empty>
        ) : (
          <ul class="lines">
            {traces.map((trace) => (
              <Pass
                key={trace.trace_id}
                id={trace.trace_id}
                name={trace.root.name}
                start={trace.start}
                duration={trace.duration}
              />
            ))}
          </ul>
        )}
      </Card>
      <div class="grid-3 charts">
        {panels.map((panel) => (
          <PanelCard key={panel.id} panel={panel} />
        ))}
      </div>
    </>
  );
}

function Pass({ id, name, start, duration }: { id: string; name: string; start: number; duration: number }) {
  const { data } = useApi<Trace>(observe(`/traces/${id}`));
  const root = data?.spans.find((span) => span.parent_id === null) ?? data?.spans[0];
  return (
    <li>
      <Link to={`/traces/${id}`} class="pass-name">
        {names[name as keyof typeof names] ?? name}
      </Link>
      <span class="grow clip muted">{root ? countsOf(root.attributes, root.links.length) : "…"}</span>
      <Duration micros={duration} />
      <span class="muted line-time">
        <Time at={start} />
      </span>
    </li>
  );
}

const countKeys = [
  "requests",
  "runs",
  "adapters",
  "sequences",
  "segments",
  "tokens",
  "prefill_tokens",
  "decode_tokens",
];

function countsOf(attributes: Attributes, links: number): string {
  const parts = countKeys.flatMap((key) => {
    const value = attributes[`tuft.${key}`];
    return value === undefined || value === null ? [] : [`${formatNumber(Number(value))} ${key.replace("_", " ")}`];
  });
  const model = attributes["tuft.base_model"];
  return [typeof model === "string" ? model : "", ...parts, links ? `links to ${links} requests` : ""]
    .filter(Boolean)
    .join(" · ");
}
