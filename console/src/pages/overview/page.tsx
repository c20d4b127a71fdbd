// Is it healthy, what is it doing, who uses it, what waits and why.

import { observe, who } from "../../api/client.ts";
import type { LogPage, Overview, System, Tenants, TracePage } from "../../api/types.ts";
import { useApi } from "../../api/use_api.ts";
import { range } from "../../app/state.ts";
import { Badge, Card, Empty, ErrorBox, Skeleton } from "../../ui/basics.tsx";
import { PanelCard } from "../../ui/panel.tsx";
import { operationSpan, SpanCard } from "../../ui/span_chart.tsx";
import { attention } from "./attention.ts";
import { Health } from "./health.tsx";
import { Failures, Models, Shares, TelemetryHealth, Warnings } from "./lists.tsx";
import { OperatorTiles, UserTiles } from "./tiles.tsx";

const operations = { name: operationSpan };

export default function Page() {
  const { from, until } = range.value;
  const overview = useApi<Overview>(observe("/overview"), { every: 2000 });
  const system = useApi<System>(observe("/system"), { every: 15_000 });
  const tenants = useApi<Tenants>(observe("/tenants"), { every: 10_000 });
  const failed = useApi<TracePage>(observe("/traces", { ...operations, status: "error", limit: 6, from, until }), {
    every: 5000,
  });
  const warnings = useApi<LogPage>(observe("/logs", { level: "warning", limit: 6, from, until }), { every: 5000 });
  const operator = who.value?.operator ?? false;
  const store = system.data?.telemetry.store ?? null;

  if (!overview.data)
    return overview.error ? <ErrorBox error={overview.error} retry={overview.reload} /> : <Skeleton height={260} />;
  const now = overview.data;
  const notices = attention(now, system.data?.workers ?? [], store, tenants.data?.tenants ?? []);
  return (
    <>
      {overview.error && (
        <ErrorBox error={`These are the last known values. ${overview.error.message}`} retry={overview.reload} />
      )}
      <Health overview={now} notices={notices} lost={overview.error?.status === 0} />
      {operator ? <OperatorTiles overview={now} /> : <UserTiles overview={now} />}
      <Models overview={now} />
      <div class="grid-3 charts">
        {operator && (
          <>
            <PanelCard
              panel={{
                id: "o-training",
                title: "Training tokens",
                queries: [{ metric: "tuft.training.tokens", fn: "rate", by: ["base_model"] }],
                kind: "stack",
              }}
            />
            <PanelCard
              panel={{
                id: "o-sampling",
                title: "Sampled tokens",
                queries: [{ metric: "decode_tokens_processed", fn: "rate", by: ["worker"] }],
                kind: "stack",
              }}
            />
            <PanelCard
              panel={{
                id: "o-waiting",
                title: "Operations that wait",
                queries: [{ metric: "tuft.dispatch.waiting", fn: "last", by: ["base_model", "kind"] }],
                kind: "stack",
              }}
            />
          </>
        )}
        {!operator && (
          <SpanCard
            title="Operations by type"
            query={{ fn: "rate", by: "operation", filters: operations }}
            to="/traces"
            kind="stack"
            empty="No operation in this time range"
          />
        )}
        <SpanCard
          title="Latency of operations (p95)"
          query={{ fn: "p95", by: "operation", filters: operations }}
          to="/traces"
          params={{ sort: "-duration" }}
          empty="No operation in this time range"
        />
        <SpanCard
          title="Failed operations"
          query={{ fn: "errors", by: "operation", filters: operations }}
          to="/traces"
          params={{ status: "error" }}
          kind="bars"
          empty="Nothing ran in this time range"
        />
        {operator && (
          <>
            <SpanCard
              title="Operations at work, by user"
              query={{ fn: "busy", by: "user", filters: operations }}
              to="/tenants"
              kind="stack"
              empty="No operation in this time range"
            />
            <PanelCard
              panel={{
                id: "o-machine",
                title: "Processors and engine",
                queries: [
                  { metric: "system.cpu.utilization", fn: "mean", by: [], label: "processors" },
                  { metric: "tuft.worker.busy", fn: "mean", by: ["worker"], label: "engine" },
                ],
                yMax: 1,
              }}
            />
            <PanelCard
              panel={{
                id: "o-memory",
                title: "Memory of the processes",
                queries: [{ metric: "process.memory.usage", fn: "last", by: ["worker"] }],
                kind: "stack",
              }}
            />
            <PanelCard
              panel={{
                id: "o-gpu",
                title: "GPUs",
                queries: [
                  {
                    metric: "tuft.resource.gpu.utilization_percent",
                    fn: "mean",
                    by: ["gpu_id"],
                    fold: { over: ["worker"], by: "max" },
                    label: "GPU",
                  },
                ],
                yMax: 100,
              }}
              empty="This machine has no GPU that the server knows"
            />
          </>
        )}
      </div>
      <div class="grid-2">
        <Failures answer={failed} />
        <Warnings answer={warnings} />
      </div>
      <div class="grid-2">
        <Shares tenants={tenants.data?.tenants} operator={operator} />
        <Card
          title="Telemetry"
          label="Telemetry"
          actions={store && (store.problem ? <Badge tone="bad">in memory only</Badge> : <Badge tone="ok">kept</Badge>)}
        >
          {system.data ? <TelemetryHealth system={system.data} /> : <Empty title="Not known yet" />}
        </Card>
      </div>
    </>
  );
}
