// The sessions of clients, with what they made of the server in plain words.

import type { Session, SessionPage } from "../../api/types.ts";
import type { Answer } from "../../api/use_api.ts";
import { formatNumber, formatShare } from "../../lib/units.ts";
import { Badge, Card, Copy, Empty, ErrorBox, Link, Skeleton, Time } from "../../ui/basics.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";

const columns: Column<Session>[] = [
  {
    key: "name",
    title: "Session",
    render: (row) => (
      <span class="row tight nowrap-row">
        <Link to="/traces" params={{ session: row.session }} class="clip">
          {row.display_name || row.session}
        </Link>
        {row.display_name && <Copy text={row.session} short={6} label="session id" />}
      </span>
    ),
    sort: (row) => row.display_name || row.session,
    width: "minmax(160px, 1.4fr)",
  },
  { key: "user", title: "User", render: (row) => row.user, sort: (row) => row.user, width: "minmax(70px, 0.6fr)" },
  {
    key: "alive",
    title: "State",
    render: (row) => (row.alive ? <Badge tone="ok">alive</Badge> : <Badge>ended</Badge>),
    sort: (row) => Number(row.alive),
    width: "84px",
  },
  {
    key: "use",
    title: "How it used the server",
    render: (row) => usage(row),
    sort: (row) => row.busy_share,
    width: "minmax(220px, 2.4fr)",
    hint: "Share of its life in which an operation was unfinished, and how many at once",
    wide: true,
  },
  {
    key: "runs",
    title: "Runs",
    render: (row) => (
      <Link to="/runs" params={{ session: row.session }}>
        {formatNumber(row.runs)}
      </Link>
    ),
    sort: (row) => row.runs,
    right: true,
    width: "64px",
    wide: true,
  },
  {
    key: "samplers",
    title: "Samplers",
    render: (row) => (
      <Link to="/samplers" params={{ session: row.session }}>
        {formatNumber(row.samplers)}
      </Link>
    ),
    sort: (row) => row.samplers,
    right: true,
    width: "84px",
    wide: true,
  },
  {
    key: "sdk",
    title: "SDK",
    render: (row) => row.sdk_version ?? "–",
    sort: (row) => row.sdk_version,
    width: "76px",
    wide: true,
  },
  {
    key: "heartbeat",
    title: "Last sign",
    render: (row) => <Time at={row.last_heartbeat} />,
    sort: (row) => row.last_heartbeat,
    right: true,
    width: "100px",
  },
];

/** "busy 87 % of its life, 3.4 operations at a time". */
export function usage(session: Session): string {
  if (session.busy_share === null) return "has not asked for anything yet";
  const parallel = session.concurrency === null ? "" : `, ${formatNumber(session.concurrency)} operations at a time`;
  return `busy ${formatShare(session.busy_share)} of its life${parallel}`;
}

export function Sessions({ answer, user, operator }: { answer: Answer<SessionPage>; user: string; operator: boolean }) {
  const rows = (answer.data?.sessions ?? []).filter((session) => !user || session.user === user);
  return (
    <Card title={user ? `Sessions of ${user}` : operator ? "Sessions" : "Your sessions"} flush>
      {answer.error && !answer.data ? (
        <ErrorBox error={answer.error} retry={answer.reload} />
      ) : !answer.data ? (
        <Skeleton height={120} />
      ) : (
        <DataTable
          label="Sessions"
          columns={operator ? columns : columns.filter((column) => column.key !== "user")}
          rows={rows}
          rowKey={(row) => row.session}
          sortParam="sessions"
          defaultSort="-heartbeat"
          framed={false}
          empty={
            <Empty title="No session">
              <p>
                A program makes one with <code>tinker.ServiceClient()</code>.
              </p>
            </Empty>
          }
        />
      )}
    </Card>
  );
}
