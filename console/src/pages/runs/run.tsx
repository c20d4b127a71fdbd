// One training run: its curves, where its time went, what would make it faster, its checkpoints.

import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { observe } from "../../api/client.ts";
import type { RunDetail, RunStep } from "../../api/types.ts";
import { useApi } from "../../api/use_api.ts";
import type { PageProps } from "../../app/pages.ts";
import { usePageTitle } from "../../app/shell.tsx";
import { formatCount, formatDuration, formatNumber, formatSeconds, formatShare } from "../../lib/units.ts";
import { partKind, workColour } from "../../trace/palette.ts";
import { Card, Copy, Empty, ErrorBox, Link, Skeleton, Stat, Time } from "../../ui/basics.tsx";
import { Chart } from "../../ui/chart.tsx";
import { useTheme } from "../../ui/colors.ts";
import { type Column, DataTable } from "../../ui/table.tsx";
import { ChartTools, RunCharts, useChartSettings } from "./charts.tsx";
import { Checkpoints } from "./checkpoints.tsx";
import { measureOf, type PartKey, partsOverSteps } from "./curves.ts";
import { RunState } from "./list.tsx";
import { useSteps } from "./use_steps.ts";
import { shortRun } from "./words.ts";
import "../traces/traces.css";
import "./runs.css";

export default function RunPage({ params }: PageProps) {
  const id = params["id"] ?? "";
  const { data, error, reload } = useApi<RunDetail>(observe(`/runs/${encodeURIComponent(id)}`), {
    every: 5000,
    keep: false,
  });
  const followed = useSteps(
    useMemo(() => [id], [id]),
    data && !data.alive ? 0 : 3000,
  );
  usePageTitle(`Run ${shortRun(id)}`);
  if (error?.status === 404) {
    return (
      <Empty title="This run is not here">
        <p>
          There is no run <code>{id}</code> that you may see. <Link to="/runs">To the runs</Link>
        </p>
      </Empty>
    );
  }
  if (error && !data) return <ErrorBox error={error} retry={reload} />;
  if (!data) return <Skeleton height={480} />;
  const steps = followed.steps.get(id) ?? [];
  return (
    <>
      <Header run={data} />
      <Figures run={data} steps={steps} />
      {followed.error && <ErrorBox error={followed.error} />}
      <Curves id={id} steps={steps} />
      <div class="grid-2">
        <TimeCard run={data} />
        <AdviceCard run={data} />
      </div>
      <Card title="Time of each step">
        <StepTimes steps={steps} />
      </Card>
      <Card title="Checkpoints" flush>
        <Checkpoints run={id} checkpoints={data.checkpoints} reload={reload} />
      </Card>
      <Card title="Operations" flush>
        <Operations run={data} />
      </Card>
    </>
  );
}

function Header({ run }: { run: RunDetail }) {
  return (
    <div class="row spread">
      <dl class="trace-facts run-facts">
        <div>
          <dt>Run</dt>
          <dd>
            <Copy text={run.run} label="the run's id" /> <RunState run={run} />
          </dd>
        </div>
        <Fact name="Base model">{run.base_model}</Fact>
        <Fact name="LoRA rank">{run.lora_rank}</Fact>
        <Fact name="Optimizer">{run.optimizer}</Fact>
        <Fact name="User">{run.user}</Fact>
        <Fact name="Created">
          <Time at={run.created} />
        </Fact>
        <Fact name="Last active">
          <Time at={run.last_active} />
        </Fact>
      </dl>
      <div class="row tight">
        <Link class="btn small" to="/runs" params={{ runs: run.run }}>
          Compare with others
        </Link>
        <Link class="btn small" to="/traces" params={{ run: run.run }}>
          Traces
        </Link>
        <Link class="btn small" to="/logs" params={{ run: run.run }}>
          Logs
        </Link>
      </div>
    </div>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  if (children === null || children === undefined || children === "") return null;
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Figures({ run, steps }: { run: RunDetail; steps: readonly RunStep[] }) {
  const recent = steps.slice(-120);
  const points = (key: "loss" | "grad_norm" | "tokens_per_second") => recent.map((step) => measureOf(step, key));
  const clipped = recent.filter((step) => step.clipped).length;
  return (
    <div class="grid-4 run-figures">
      <Stat label="Loss" value={formatNumber(run.loss)} points={points("loss")} />
      <Stat
        label="Gradient norm"
        value={formatNumber(run.grad_norm)}
        note={clipped ? `clipped in ${clipped} of the last ${recent.length} steps` : "never clipped lately"}
        points={points("grad_norm")}
      />
      <Stat label="Tokens per second" value={formatCount(run.tokens_per_second)} points={points("tokens_per_second")} />
      <Stat
        label="Steps"
        value={formatNumber(run.steps)}
        note={run.learning_rate === null ? "" : `learning rate ${formatNumber(run.learning_rate)}`}
      />
    </div>
  );
}

function Curves({ id, steps }: { id: string; steps: readonly RunStep[] }) {
  const settings = useChartSettings();
  const runs = useMemo(() => [{ id, label: shortRun(id), color: 0, steps }], [id, steps]);
  return (
    <>
      <div class="row spread">
        <h2>Curves</h2>
        <ChartTools settings={settings} />
      </div>
      <RunCharts runs={runs} settings={settings} />
    </>
  );
}

const PART_WORDS: Readonly<Record<string, string>> = {
  passes: "Forward and backward passes",
  optimizer: "Optimizer steps",
  waiting: "Waiting behind other work",
  saving: "Saving",
  idle: "No request was there",
};

function TimeCard({ run }: { run: RunDetail }) {
  const isDark = useTheme();
  const parts = run.time.parts.filter((part) => part.seconds > 0);
  const colour = (kind: string) => workColour(partKind(kind), isDark ? "dark" : "light");
  return (
    <Card title="Where the time went" actions={<span class="muted">of {formatSeconds(run.time.window_seconds)}</span>}>
      {parts.length === 0 ? (
        <p class="muted">Nothing was executed yet.</p>
      ) : (
        <>
          <div class="why-bar" aria-hidden="true">
            {parts.map((part) => (
              <span
                key={part.kind}
                style={{
                  flexGrow: String(part.share),
                  flexBasis: "0",
                  minWidth: "2px",
                  backgroundColor: colour(part.kind),
                }}
                class={part.kind === "idle" ? "hatched" : undefined}
              />
            ))}
          </div>
          <dl class="time-parts">
            {parts.map((part) => (
              <div key={part.kind}>
                <dt>
                  <span
                    class={`swatch ${part.kind === "idle" ? "hatched" : ""}`}
                    style={{ backgroundColor: colour(part.kind) }}
                  />
                  {PART_WORDS[part.kind] ?? part.kind}
                </dt>
                <dd>{formatSeconds(part.seconds)}</dd>
                <dd>
                  <b>{formatShare(part.share)}</b>
                </dd>
              </div>
            ))}
          </dl>
        </>
      )}
    </Card>
  );
}

function AdviceCard({ run }: { run: RunDetail }) {
  return (
    <Card title="How to make it faster">
      {run.advice.length === 0 ? (
        <p class="muted">Nothing stands out. Advice appears after some steps.</p>
      ) : (
        <ul class="advice">
          {run.advice.map((words) => (
            <li key={words}>{words}</li>
          ))}
        </ul>
      )}
    </Card>
  );
}

const STEP_PARTS: readonly { key: PartKey; label: string; color: number }[] = [
  { key: "pass_seconds", label: "passes", color: 0 },
  { key: "step_seconds", label: "optimizer", color: 3 },
  { key: "wait_seconds", label: "waiting", color: 4 },
  { key: "save_seconds", label: "saving", color: 6 },
  { key: "idle_seconds", label: "no request", color: 7 },
];

function StepTimes({ steps }: { steps: readonly RunStep[] }) {
  const { x, series } = useMemo(() => {
    const { x, y } = partsOverSteps(
      steps,
      STEP_PARTS.map((part) => part.key),
      240,
    );
    return { x, series: STEP_PARTS.map((part, i) => ({ label: part.label, color: part.color, points: y[i] ?? [] })) };
  }, [steps]);
  return (
    <Chart
      label="Seconds of each step, by what took them"
      x={x}
      series={series}
      quantity={{ unit: "s" }}
      kind="stack"
      height={200}
      time={false}
      xLabel={(value) => formatNumber(value)}
      onBrush={null}
      empty="No optimizer step yet"
    />
  );
}

type Operation = RunDetail["operations"][number];

function Operations({ run }: { run: RunDetail }) {
  const columns: Column<Operation>[] = [
    {
      key: "operation",
      title: "Operation",
      width: "minmax(140px, 2fr)",
      sort: (row) => row.operation,
      render: (row) => (
        <Link to="/traces" params={{ run: run.run, operation: row.operation }}>
          {row.operation}
        </Link>
      ),
    },
    { key: "count", title: "Count", right: true, sort: (row) => row.count, render: (row) => formatNumber(row.count) },
    { key: "p50", title: "Median", right: true, sort: (row) => row.p50, render: (row) => formatDuration(row.p50) },
    { key: "p95", title: "p95", right: true, sort: (row) => row.p95, render: (row) => formatDuration(row.p95) },
    {
      key: "failed",
      title: "Failed",
      right: true,
      sort: (row) => row.failed,
      render: (row) =>
        row.failed ? (
          <Link to="/traces" params={{ run: run.run, operation: row.operation, status: "error" }}>
            {formatNumber(row.failed)}
          </Link>
        ) : (
          "0"
        ),
    },
  ];
  return (
    <DataTable
      label="Operations"
      rows={run.operations}
      columns={columns}
      rowKey={(row) => row.operation}
      sortParam="operations"
      framed={false}
    />
  );
}
