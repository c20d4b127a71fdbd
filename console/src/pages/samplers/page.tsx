// The samplers: whose weights they hold, how much they are used, and the way to try one.

import { useState } from "preact/hooks";
import { getJson, observe, who } from "../../api/client.ts";
import type { Sampler, SamplerPage } from "../../api/types.ts";
import { useApi } from "../../api/use_api.ts";
import { useParams } from "../../app/router.ts";
import type { FilterKey } from "../../lib/query.ts";
import { formatNumber } from "../../lib/units.ts";
import { Copy, Empty, ErrorBox, Link, Skeleton, Time } from "../../ui/basics.tsx";
import { FilterBar, filterNames } from "../../ui/filter_bar.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";

const keys: FilterKey[] = [
  { key: "user", label: "User" },
  { key: "session", label: "Session" },
  { key: "base_model", label: "Model" },
  { key: "run", label: "Run", example: "id of the run whose weights it has" },
];

/** The part of a tinker:// path that tells checkpoints of a run apart. */
const shortPath = (path: string) => path.replace(/^tinker:\/\/([^/]{0,8})[^/]*\//, "$1…/");

const columns: Column<Sampler>[] = [
  {
    key: "weights",
    title: "Weights",
    render: (row) => (
      <span class="row tight nowrap-row">
        <Link
          to="/playground"
          params={{ a: row.model_path ?? row.base_model }}
          class="clip"
          title={row.model_path ?? row.base_model}
        >
          {row.model_path ? shortPath(row.model_path) : `${row.base_model}, base`}
        </Link>
        {row.follows_run && (
          <Link
            to={`/runs/${encodeURIComponent(row.follows_run)}`}
            class="badge accent"
            title="Gets each new version of this run"
          >
            follows its run
          </Link>
        )}
      </span>
    ),
    sort: (row) => row.model_path ?? row.base_model,
    width: "minmax(200px, 2fr)",
  },
  {
    key: "model",
    title: "Model",
    render: (row) => row.base_model,
    sort: (row) => row.base_model,
    width: "minmax(120px, 1fr)",
    wide: true,
  },
  { key: "user", title: "User", render: (row) => row.user, sort: (row) => row.user, width: "minmax(64px, 0.5fr)" },
  {
    key: "id",
    title: "Id",
    render: (row) => <Copy text={row.sampler} short={13} label="sampler id" />,
    width: "150px",
    wide: true,
  },
  {
    key: "requests",
    title: "Requests",
    render: (row) => formatNumber(row.requests),
    sort: (row) => row.requests,
    right: true,
    width: "88px",
  },
  {
    key: "used",
    title: "Last use",
    render: (row) => <Time at={row.last_active} />,
    sort: (row) => row.last_active,
    right: true,
    width: "100px",
    wide: true,
  },
  {
    key: "created",
    title: "Made",
    render: (row) => <Time at={row.created} />,
    sort: (row) => row.created,
    right: true,
    width: "100px",
    wide: true,
  },
  {
    key: "links",
    title: <span class="visually-hidden">Links</span>,
    render: (row) => (
      <span class="row tight nowrap-row">
        <Link to="/traces" params={{ sampler: row.sampler }}>
          traces
        </Link>
        <Link to="/logs" params={{ sampler: row.sampler, level: "debug" }}>
          logs
        </Link>
      </span>
    ),
    width: "100px",
    wide: true,
  },
];

function matches(row: Sampler, filters: Record<string, string>): boolean {
  const text = filters["text"]?.toLowerCase();
  return (
    (!filters["user"] || row.user === filters["user"]) &&
    (!filters["session"] || row.session === filters["session"]) &&
    (!filters["base_model"] || row.base_model === filters["base_model"]) &&
    (!filters["run"] || row.follows_run === filters["run"] || Boolean(row.model_path?.includes(filters["run"]))) &&
    (!text ||
      Object.values(row).some((value) =>
        String(value ?? "")
          .toLowerCase()
          .includes(text),
      ))
  );
}

export default function Page() {
  const { data, error, reload } = useApi<SamplerPage>(observe("/samplers", { limit: 200 }), { every: 5000 });
  const [more, setMore] = useState<{ samplers: Sampler[]; next: string | null } | null>(null);
  const filters = useParams(filterNames(keys));
  const operator = who.value?.operator ?? false;
  if (!data) return error ? <ErrorBox error={error} retry={reload} /> : <Skeleton height={260} />;
  const known = new Set(data.samplers.map((row) => row.sampler));
  const all = [...data.samplers, ...(more?.samplers ?? []).filter((row) => !known.has(row.sampler))];
  const next = more ? more.next : data.next;
  const loadMore = async () => {
    const page = await getJson<SamplerPage>(observe("/samplers", { limit: 200, cursor: next }));
    setMore((before) => ({ samplers: [...(before?.samplers ?? []), ...page.samplers], next: page.next }));
  };
  const rows = all.filter((row) => matches(row, filters));
  return (
    <>
      {error && <ErrorBox error={`These are the last known values. ${error.message}`} retry={reload} />}
      <FilterBar
        keys={operator ? keys : keys.filter((key) => key.key !== "user")}
        placeholder="Filter: base_model:… run:… or words"
      />
      <DataTable
        label="Samplers"
        columns={operator ? columns : columns.filter((column) => column.key !== "user")}
        rows={rows}
        rowKey={(row) => row.sampler}
        defaultSort="-used"
        empty={
          <Empty title={all.length ? "No sampler matches" : "There is no sampler yet"}>
            <p>
              {all.length ? (
                "Remove a filter."
              ) : (
                <>
                  A program makes one with <code>service_client.create_sampling_client(…)</code>. Base models can be
                  tried in the <Link to="/playground">playground</Link> without one.
                </>
              )}
            </p>
          </Empty>
        }
        foot={
          next && (
            <button type="button" class="btn small" onClick={() => void loadMore()}>
              More
            </button>
          )
        }
      />
    </>
  );
}
