import type { Overview } from "../../api/types.ts";
import type { Query } from "../../lib/panels.ts";
import { exploreParams } from "../../lib/panels.ts";
import { formatCount, formatDuration, formatNumber, formatShare } from "../../lib/units.ts";
import { Stat } from "../../ui/basics.tsx";
import { usePanel } from "../../ui/panel.tsx";
import { operationSpan, useSpanSeries } from "../../ui/span_chart.tsx";

const filters = { name: operationSpan };
const points = 60;

const lastOf = (values: (number | null)[] | undefined): number | null => {
  // The newest interval is not over: the one before it is the first whole one.
  const known = values?.slice(0, -1).findLast((value) => value !== null);
  return known ?? values?.findLast((value) => value !== null) ?? null;
};
const sumOf = (values: (number | null)[] | undefined) =>
  (values ?? []).reduce<number>((total, value) => total + (value ?? 0), 0);

function split(text: string): { value: string; unit: string } {
  const blank = text.indexOf(" ");
  return blank < 0 ? { value: text, unit: "" } : { value: text.slice(0, blank), unit: text.slice(blank + 1) };
}

/** A metric's newest value and its course over the time range. */
function MetricTile({
  label,
  query,
  show,
  note,
}: {
  label: string;
  query: Query;
  show: (value: number | null) => string;
  note: string;
}) {
  const { chart } = usePanel({ id: label, title: label, queries: [query] }, 5000, points);
  const values = chart?.series[0]?.points;
  const { value, unit } = split(show(lastOf(values)));
  return (
    <Stat
      label={label}
      value={value}
      unit={unit}
      note={note}
      points={values ?? []}
      to="/metrics"
      params={exploreParams(query)}
    />
  );
}

function LatencyTile() {
  const { chart } = useSpanSeries({ fn: "p95", filters }, 5000, points);
  const values = chart?.series[0]?.points;
  const last = lastOf(values);
  const { value, unit } = split(formatDuration(last === null ? null : last * 1e6));
  return (
    <Stat
      label="Latency (p95)"
      value={value}
      unit={unit}
      note="of operations"
      points={values ?? []}
      to="/traces"
      params={{ sort: "-duration" }}
    />
  );
}

function FailureTile() {
  const errors = useSpanSeries({ fn: "errors", filters }, 5000, points);
  const counts = useSpanSeries({ fn: "count", filters }, 5000, points);
  const values = errors.chart?.series[0]?.points;
  const failed = sumOf(values);
  const all = sumOf(counts.chart?.series[0]?.points);
  return (
    <Stat
      label="Failed operations"
      value={formatNumber(failed)}
      note={all ? `${formatShare(failed / all)} of ${formatCount(all)}` : "nothing ran in this time"}
      tone={all && failed / all > 0.05 ? "bad" : "none"}
      points={values ?? []}
      to="/traces"
      params={{ status: "error" }}
    />
  );
}

function RateTile() {
  const { chart } = useSpanSeries({ fn: "rate", filters }, 5000, points);
  const values = chart?.series[0]?.points;
  const last = lastOf(values);
  return (
    <Stat
      label="Operations"
      value={formatNumber(last)}
      unit={last === null ? "" : "/s"}
      note="that began"
      points={values ?? []}
      to="/traces"
    />
  );
}

const perSecond = (value: number | null) =>
  value === null ? "–" : `${formatCount(value)}${/[kMG]$/.test(formatCount(value)) ? "" : " "}/s`;

export function OperatorTiles({ overview }: { overview: Overview }) {
  return (
    <div class="grid-4 tiles">
      <MetricTile
        label="Training"
        query={{ metric: "tuft.training.tokens", fn: "rate" }}
        show={perSecond}
        note="tokens in passes"
      />
      <MetricTile
        label="Sampling"
        query={{ metric: "decode_tokens_processed", fn: "rate" }}
        show={perSecond}
        note="output tokens"
      />
      <MetricTile
        label="Waiting"
        query={{ metric: "tuft.dispatch.waiting", fn: "last" }}
        show={(value) =>
          formatNumber(value ?? overview.models.reduce((sum, one) => sum + one.queue.training + one.queue.sampling, 0))
        }
        note="for their turn"
      />
      <LatencyTile />
      <FailureTile />
      <MetricTile
        label="Engine busy"
        query={{ metric: "tuft.worker.busy", fn: "mean", fold: { over: ["worker"], by: "mean" } }}
        show={formatShare}
        note="mean of workers"
      />
    </div>
  );
}

/** A user sees their own operations; metrics of the whole server are the operator's. */
export function UserTiles({ overview }: { overview: Overview }) {
  return (
    <div class="grid-4 tiles">
      <RateTile />
      <LatencyTile />
      <FailureTile />
      <Stat label="At work or waiting" value={formatNumber(overview.pending)} note="of your operations" to="/traces" />
      <Stat label="Runs" value={formatNumber(overview.runs)} note="with their curves and checkpoints" to="/runs" />
      <Stat label="Samplers" value={formatNumber(overview.samplers)} note="to try in the playground" to="/samplers" />
    </div>
  );
}
