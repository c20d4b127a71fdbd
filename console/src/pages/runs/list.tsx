// The training runs, and the curves of those that are chosen over each other.

import { useMemo } from "preact/hooks";
import { observe, who } from "../../api/client.ts";
import type { Run, RunPage } from "../../api/types.ts";
import { useApi } from "../../api/use_api.ts";
import { navigate, useList, useParams } from "../../app/router.ts";
import type { FilterKey } from "../../lib/query.ts";
import { formatCount, formatNumber } from "../../lib/units.ts";
import { Badge, Empty, ErrorBox, Skeleton, Spark, Time } from "../../ui/basics.tsx";
import { seriesVar } from "../../ui/colors.ts";
import { FilterBar, filterNames } from "../../ui/filter_bar.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { ChartTools, RunCharts, RunLegend, type ShownRun, useChartSettings } from "./charts.tsx";
import { useSteps } from "./use_steps.ts";
import { shortRun } from "./words.ts";
import "./runs.css";

/** As many are drawn at once; more cannot be told apart. */
const SHOWN_MAX = 8;
/** Only the first rows have a line; each is a request. */
const SPARKS_MAX = 24;

const FILTERS: FilterKey[] = [
  { key: "user", label: "User" },
  { key: "session", label: "Session", example: "its id" },
  { key: "base_model", label: "Base model" },
  { key: "status", label: "Status", values: ["running", "ended", "lost"] },
];

function statusOf(run: Run): string {
  return run.corrupted ? "lost" : run.alive ? "running" : "ended";
}

function matches(run: Run, filters: Record<string, string>): boolean {
  const text = filters["text"]?.toLowerCase() ?? "";
  return (
    (!filters["user"] || run.user === filters["user"]) &&
    (!filters["session"] || run.session === filters["session"]) &&
    (!filters["base_model"] || run.base_model === filters["base_model"]) &&
    (!filters["status"] || statusOf(run) === filters["status"]) &&
    (!text || `${run.run} ${run.user} ${run.base_model} ${run.optimizer ?? ""}`.toLowerCase().includes(text))
  );
}

export default function RunsPage() {
  const { data, error, loading, reload } = useApi<RunPage>(observe("/runs", { limit: 200 }), { every: 4000 });
  const [chosen, setChosen] = useList("runs");
  const settings = useChartSettings();
  const filters = useParams(filterNames(FILTERS));
  const runs = (data?.runs ?? []).filter((run) => matches(run, filters));
  // Without a choice the newest runs that do something are shown.
  const shownIds = useMemo(() => {
    if (chosen.length) return chosen.slice(0, SHOWN_MAX);
    const active = runs.filter((run) => run.alive && run.steps > 0);
    return (active.length ? active : runs.filter((run) => run.steps > 0)).slice(0, 3).map((run) => run.run);
  }, [chosen.join(), runs.map((run) => `${run.run}${run.alive}`).join()]);
  const followed = useSteps(shownIds);
  const sparks = useSteps(
    useMemo(() => runs.slice(0, SPARKS_MAX).map((run) => run.run), [runs.map((run) => run.run).join()]),
    15_000,
    60,
  );
  const shown: ShownRun[] = useMemo(
    () =>
      shownIds.flatMap((id, color) => {
        const steps = followed.steps.get(id);
        return steps ? [{ id, label: shortRun(id), color, steps }] : [];
      }),
    [shownIds, followed.steps],
  );
  if (error && !data) return <ErrorBox error={error} retry={reload} />;
  if (loading) return <Skeleton height={420} />;
  if (data?.runs.length === 0) return <NoRuns />;

  const toggle = (id: string) =>
    setChosen(chosen.includes(id) ? chosen.filter((one) => one !== id) : [...shownBefore(chosen), id]);
  const shownBefore = (list: string[]) => (list.length >= SHOWN_MAX ? list.slice(1) : list);
  return (
    <>
      <FilterBar
        keys={who.value?.operator ? FILTERS : FILTERS.filter((key) => key.key !== "user")}
        placeholder="Filter runs: base_model:… status:running or words"
      />
      <div class="row spread">
        <div>
          <p class="muted">
            {chosen.length
              ? "The runs that you chose in the table."
              : "The newest runs in progress. Choose others in the table to lay them over each other."}
          </p>
          <RunLegend runs={shown} onRemove={chosen.length ? toggle : undefined} />
        </div>
        <ChartTools settings={settings} />
      </div>
      {followed.error && <ErrorBox error={followed.error} />}
      {shown.length > 0 && <RunCharts runs={shown} settings={settings} />}
      <DataTable
        label="Training runs"
        rows={runs}
        columns={columnsOf(shownIds, chosen, toggle, (id) => sparks.steps.get(id)?.map((step) => step.loss) ?? [])}
        rowKey={(run) => run.run}
        onOpen={(run) => navigate(`/runs/${encodeURIComponent(run.run)}`)}
        empty={<Empty title="No run meets the filter" />}
      />
    </>
  );
}

function columnsOf(
  shown: readonly string[],
  chosen: readonly string[],
  toggle: (id: string) => void,
  lossOf: (id: string) => (number | null)[],
): Column<Run>[] {
  return [
    {
      key: "show",
      title: <span class="visually-hidden">Shown above</span>,
      width: "34px",
      render: (run) => {
        return (
          <input
            type="checkbox"
            class="run-check"
            checked={chosen.includes(run.run)}
            aria-label={`Show the curves of ${shortRun(run.run)}`}
            onChange={() => toggle(run.run)}
          />
        );
      },
    },
    {
      key: "run",
      title: "Run",
      width: "minmax(220px, 1.6fr)",
      sort: (run) => run.created,
      render: (run) => (
        <span class="run-name" title={run.run}>
          <ColourOf place={shown.indexOf(run.run)} />
          <code class="clip">{shortRun(run.run)}</code>
          <RunState run={run} />
        </span>
      ),
    },
    {
      key: "model",
      title: "Base model",
      width: "minmax(110px, 1fr)",
      wide: true,
      sort: (run) => run.base_model,
      render: (run) => run.base_model,
    },
    {
      key: "user",
      title: "User",
      width: "minmax(60px, 0.5fr)",
      wide: true,
      sort: (run) => run.user,
      render: (run) => run.user,
    },
    {
      key: "curve",
      title: "Loss",
      width: "minmax(70px, 0.8fr)",
      wide: true,
      render: (run) => <Spark points={lossOf(run.run)} />,
    },
    {
      key: "loss",
      title: "Last loss",
      width: "80px",
      right: true,
      sort: (run) => run.loss,
      render: (run) => formatNumber(run.loss),
    },
    {
      key: "grad",
      title: "Grad. norm",
      width: "92px",
      right: true,
      wide: true,
      sort: (run) => run.grad_norm,
      render: (run) => formatNumber(run.grad_norm),
    },
    {
      key: "rate",
      title: "Learning rate",
      width: "104px",
      right: true,
      wide: true,
      sort: (run) => run.learning_rate,
      render: (run) => formatNumber(run.learning_rate),
    },
    {
      key: "speed",
      title: "Tokens/s",
      width: "80px",
      right: true,
      wide: true,
      sort: (run) => run.tokens_per_second,
      render: (run) => formatCount(run.tokens_per_second),
    },
    {
      key: "steps",
      title: "Steps",
      width: "68px",
      right: true,
      sort: (run) => run.steps,
      render: (run) => formatNumber(run.steps),
    },
    {
      key: "active",
      title: "Last active",
      width: "104px",
      right: true,
      wide: true,
      sort: (run) => run.last_active,
      render: (run) => <Time at={run.last_active} />,
    },
  ];
}

/** The colour that the run has in the charts above. */
function ColourOf({ place }: { place: number }) {
  return <span class="swatch" style={{ backgroundColor: place < 0 ? "transparent" : `var(${seriesVar(place)})` }} />;
}

export function RunState({ run }: { run: Pick<Run, "alive" | "corrupted"> }) {
  if (run.corrupted)
    return (
      <Badge tone="bad" title="Its state was lost; load a checkpoint into a new run">
        lost
      </Badge>
    );
  return run.alive ? <Badge tone="ok">running</Badge> : <Badge>ended</Badge>;
}

function NoRuns() {
  return (
    <Empty title="No training runs yet">
      <p>
        Create one with the Tinker SDK: <code>service_client.create_lora_training_client(base_model=...)</code>. Its
        loss appears here with the first optimizer step.
      </p>
    </Empty>
  );
}
