// Who uses what: shares of the engine, tokens, quotas, sessions. A user sees their own row, an operator all.

import { observe, who } from "../../api/client.ts";
import type { SessionPage, Tenant, Tenants } from "../../api/types.ts";
import { useApi } from "../../api/use_api.ts";
import { setParams, useParam } from "../../app/router.ts";
import { formatBytes, formatCount, formatNumber, formatShare } from "../../lib/units.ts";
import { Badge, Bytes, Card, classes, Empty, ErrorBox, Skeleton } from "../../ui/basics.tsx";
import { PanelCard } from "../../ui/panel.tsx";
import { operationSpan, SpanCard } from "../../ui/span_chart.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { Sessions } from "./sessions.tsx";

const columns: Column<Tenant>[] = [
  {
    key: "user",
    title: "User",
    render: (row) => <b>{row.user}</b>,
    sort: (row) => row.user,
    width: "minmax(70px, 1.2fr)",
  },
  {
    key: "share",
    title: "Engine",
    hint: "Share of the engines' time in the last hour",
    render: (row) => (
      <span class="row tight share-cell">
        <span class="bar grow" aria-hidden="true">
          <span class="bar-accent" style={{ width: `${Math.min(1, row.engine_share ?? 0) * 100}%` }} />
        </span>
        <span class="share-figure">{formatShare(row.engine_share)}</span>
      </span>
    ),
    sort: (row) => row.engine_share,
    width: "minmax(110px, 1.6fr)",
    right: true,
  },
  {
    key: "train",
    title: "Trained tokens",
    hint: "In the last hour",
    render: (row) => formatCount(row.tokens.train),
    sort: (row) => row.tokens.train,
    right: true,
    wide: true,
    width: "112px",
  },
  {
    key: "input",
    title: "Prompt tokens",
    hint: "In the last hour",
    render: (row) => formatCount(row.tokens.input),
    sort: (row) => row.tokens.input,
    right: true,
    wide: true,
    width: "112px",
  },
  {
    key: "output",
    title: "Output tokens",
    hint: "In the last hour",
    render: (row) => formatCount(row.tokens.output),
    sort: (row) => row.tokens.output,
    right: true,
    wide: true,
    width: "112px",
  },
  {
    key: "pending",
    title: "Pending",
    hint: "Operations that wait or run",
    render: (row) => formatNumber(row.pending),
    sort: (row) => row.pending,
    right: true,
    wide: true,
    width: "80px",
  },
  {
    key: "runs",
    title: "Runs",
    render: (row) => formatNumber(row.runs),
    sort: (row) => row.runs,
    right: true,
    wide: true,
    width: "70px",
  },
  {
    key: "samplers",
    title: "Samplers",
    render: (row) => formatNumber(row.samplers),
    sort: (row) => row.samplers,
    right: true,
    wide: true,
    width: "84px",
  },
  {
    key: "checkpoints",
    title: "Checkpoints",
    render: (row) => <Bytes value={row.checkpoint_bytes} />,
    sort: (row) => row.checkpoint_bytes,
    right: true,
    wide: true,
    width: "104px",
  },
  {
    key: "quota",
    title: "Fullest quota",
    render: (row) => {
      const fullest = fullestQuota(row);
      return fullest ? (
        <Badge tone={toneOf(fullest.used / fullest.max!)}>{formatShare(fullest.used / fullest.max!)}</Badge>
      ) : (
        "–"
      );
    },
    sort: (row) => {
      const fullest = fullestQuota(row);
      return fullest ? fullest.used / fullest.max! : null;
    },
    right: true,
    width: "106px",
  },
];

const toneOf = (share: number) => (share >= 0.95 ? "bad" : share >= 0.8 ? "warn" : "ok");

function fullestQuota(tenant: Tenant) {
  return tenant.quotas
    .filter((quota) => quota.max)
    .sort((a, b) => b.used / b.max! - a.used / a.max!)
    .at(0);
}

export default function Page() {
  const tenants = useApi<Tenants>(observe("/tenants"), { every: 5000 });
  const sessions = useApi<SessionPage>(observe("/sessions", { limit: 200 }), { every: 5000 });
  const [chosen] = useParam("user");
  const operator = who.value?.operator ?? false;
  if (!tenants.data)
    return tenants.error ? <ErrorBox error={tenants.error} retry={tenants.reload} /> : <Skeleton height={260} />;
  const rows = tenants.data.tenants;
  const selected = rows.find((row) => row.user === chosen) ?? (operator ? undefined : rows[0]);
  return (
    <>
      {tenants.error && (
        <ErrorBox error={`These are the last known values. ${tenants.error.message}`} retry={tenants.reload} />
      )}
      {rows.length === 0 ? (
        <Empty title="Nobody has used the server yet">
          <p>
            Users are those of <code>authorized_users</code>. Each appears here with the first request.
          </p>
        </Empty>
      ) : (
        <DataTable
          label="Tenants"
          columns={columns}
          rows={rows}
          rowKey={(row) => row.user}
          defaultSort="-share"
          selected={selected?.user ?? null}
          onOpen={operator ? (row) => setParams({ user: row.user === chosen ? null : row.user }) : undefined}
        />
      )}
      {selected ? (
        <Quotas tenant={selected} />
      ) : (
        operator && rows.length > 0 && <p class="muted">Choose a user to see their quotas and sessions.</p>
      )}
      <div class="grid-3 charts">
        {operator && (
          <SpanCard
            title="Operations at work, by user"
            query={{ fn: "busy", by: "user", filters: { name: operationSpan } }}
            to="/traces"
            kind="stack"
            empty="No operation in this time range"
          />
        )}
        <SpanCard
          title={operator ? "Latency of operations (p95), by user" : "Latency of your operations (p95)"}
          query={{
            fn: "p95",
            by: operator ? "user" : "operation",
            filters: { name: operationSpan, user: operator ? chosen : undefined },
          }}
          to="/traces"
          params={{ user: operator ? chosen : undefined, sort: "-duration" }}
          empty="No operation in this time range"
        />
        <PanelCard
          panel={{
            id: "t-tokens",
            title: "Tokens",
            queries: [
              {
                metric: "tuft.tenant.tokens",
                fn: "rate",
                by: operator && !chosen ? ["tenant", "kind"] : ["kind"],
                where: chosen ? { tenant: chosen } : {},
              },
            ],
            kind: "stack",
          }}
          empty="Tokens by user are recorded with telemetry.tenant_label: true"
        />
      </div>
      <Sessions answer={sessions} user={chosen} operator={operator} />
    </>
  );
}

function Quotas({ tenant }: { tenant: Tenant }) {
  return (
    <Card title={`Quotas of ${tenant.user}`}>
      {tenant.quotas.length === 0 ? (
        <p class="muted">No limit applies.</p>
      ) : (
        <ul class="quotas">
          {tenant.quotas.map((quota) => {
            const show = quota.limit.includes("bytes") ? formatBytes : formatNumber;
            const share = quota.max ? quota.used / quota.max : 0;
            return (
              <li key={quota.limit}>
                <div class="row spread">
                  <code class="clip">{quota.limit}</code>
                  <span>
                    <b>{show(quota.used)}</b>{" "}
                    <span class="muted">{quota.max ? `of ${show(quota.max)}` : "no limit"}</span>
                  </span>
                </div>
                <div class="bar" role="img" aria-label={quota.max ? formatShare(share) : "no limit"}>
                  <span
                    class={classes("bar-fill", quota.max ? toneOf(share) : null)}
                    style={{ width: `${Math.min(share, 1) * 100}%` }}
                  />
                </div>
              </li>
            );
          })}
        </ul>
      )}
    </Card>
  );
}
