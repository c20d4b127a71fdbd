// The curves of one or several runs: loss, gradient norm, learning rate, tokens per second.

import { useMemo } from "preact/hooks";
import type { RunStep } from "../../api/types.ts";
import { useChoice, useNumber, useParam } from "../../app/router.ts";
import { formatNumber, type Quantity } from "../../lib/units.ts";
import { Card, Link, Segments } from "../../ui/basics.tsx";
import { Chart, type Series } from "../../ui/chart.tsx";
import { seriesVar } from "../../ui/colors.ts";
import { CloseIcon } from "../../ui/icons.tsx";
import { type Axis, align, curveOf, type MeasureKey, positive, smooth } from "./curves.ts";

export interface ShownRun {
  readonly id: string;
  readonly label: string;
  readonly color: number;
  readonly steps: readonly RunStep[];
}

const MEASURES: readonly { key: MeasureKey; title: string; quantity: Quantity }[] = [
  { key: "loss", title: "Loss", quantity: { unit: "", plain: true } },
  { key: "grad_norm", title: "Gradient norm", quantity: { unit: "", plain: true } },
  { key: "learning_rate", title: "Learning rate", quantity: { unit: "", plain: true } },
  { key: "tokens_per_second", title: "Tokens per second", quantity: { unit: "{token}", perSecond: true } },
];

export function useChartSettings() {
  const [axis, setAxis] = useChoice<Axis>("x", ["step", "time"], "step");
  const [weight, setWeight] = useNumber("smooth", 0);
  const [log, setLog] = useParam("log");
  return {
    axis,
    setAxis,
    weight: Math.min(0.99, Math.max(0, weight)),
    setWeight,
    isLog: log === "1",
    setLog: (on: boolean) => setLog(on ? "1" : null),
  };
}
export type ChartSettings = ReturnType<typeof useChartSettings>;

export function ChartTools({ settings }: { settings: ChartSettings }) {
  const { weight } = settings;
  return (
    <div class="row run-tools">
      <Segments
        label="Horizontal axis"
        value={settings.axis}
        options={[
          ["step", "Step"],
          ["time", "Time"],
        ]}
        onChange={settings.setAxis}
      />
      <button
        type="button"
        class="btn small"
        aria-pressed={settings.isLog}
        onClick={() => settings.setLog(!settings.isLog)}
      >
        Log scale
      </button>
      <label class="smooth">
        Smoothing
        <input
          type="range"
          min="0"
          max="0.99"
          step="0.01"
          value={weight}
          aria-valuetext={smoothingWords(weight)}
          onInput={(event) => settings.setWeight(Number(event.currentTarget.value))}
        />
        <span class="muted">{smoothingWords(weight)}</span>
      </label>
    </div>
  );
}

export function smoothingWords(weight: number): string {
  if (weight <= 0) return "off";
  return `moving average of about ${formatNumber(Math.round(1 / (1 - weight)))} steps`;
}

/** Which colour is which run, once for all charts. */
export function RunLegend({
  runs,
  onRemove,
}: {
  runs: readonly ShownRun[];
  onRemove?: ((id: string) => void) | undefined;
}) {
  return (
    <ul class="run-legend" aria-label="Runs shown">
      {runs.map((run) => (
        <li key={run.id}>
          <span class="swatch" style={{ backgroundColor: `var(${seriesVar(run.color)})` }} />
          <Link to={`/runs/${encodeURIComponent(run.id)}`}>
            <code>{run.label}</code>
          </Link>
          <span class="muted">loss {formatNumber(run.steps.at(-1)?.loss)}</span>
          {onRemove && (
            <button
              type="button"
              class="btn quiet small icon"
              aria-label={`Remove ${run.label} from the charts`}
              onClick={() => onRemove(run.id)}
            >
              <CloseIcon />
            </button>
          )}
        </li>
      ))}
    </ul>
  );
}

export function RunCharts({ runs, settings }: { runs: readonly ShownRun[]; settings: ChartSettings }) {
  return (
    <div class="grid-2">
      {MEASURES.map((measure) => (
        <MeasureChart key={measure.key} measure={measure} runs={runs} settings={settings} />
      ))}
    </div>
  );
}

interface MeasureProps {
  measure: (typeof MEASURES)[number];
  runs: readonly ShownRun[];
  settings: ChartSettings;
}

function MeasureChart({ measure, runs, settings }: MeasureProps) {
  const { axis, weight, isLog } = settings;
  const { x, series } = useMemo(() => {
    const curves = runs.map((run) => curveOf(run.steps, measure.key, axis));
    const { x, y } = align(curves);
    const shown: Series[] = [];
    runs.forEach((run, i) => {
      const raw = isLog ? positive(y[i] ?? []) : (y[i] ?? []);
      // What was measured stays visible behind its average.
      if (weight > 0) {
        shown.push({ label: `${run.label}, measured`, points: raw, color: run.color, faint: true });
        shown.push({ label: run.label, points: smooth(raw, weight), color: run.color, width: 2 });
      } else shown.push({ label: run.label, points: raw, color: run.color });
    });
    return { x, series: shown };
  }, [runs, measure, axis, weight, isLog]);
  return (
    <Card title={measure.title} actions={weight > 0 ? <span class="badge">smoothed</span> : null}>
      <Chart
        label={`${measure.title}${weight > 0 ? `, ${smoothingWords(weight)}` : ""}`}
        x={x}
        series={series}
        quantity={measure.quantity}
        height={210}
        time={axis === "time"}
        xLabel={(value) => `${formatNumber(value)}`}
        log={isLog}
        legend={false}
        sync="runs"
        onBrush={null}
        empty="No optimizer step yet"
      />
    </Card>
  );
}
