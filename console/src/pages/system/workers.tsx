import type { Worker } from "../../api/types.ts";
import { useParam } from "../../app/router.ts";
import { Samples } from "../../lib/samples.ts";
import { formatBytes, formatCount, formatNumber, formatSeconds, formatShare } from "../../lib/units.ts";
import { Badge, classes, Empty, Facts, Link } from "../../ui/basics.tsx";
import { seriesVar } from "../../ui/colors.ts";
import { serves, workerTone } from "../../ui/worker_states.ts";

export function Workers({ workers }: { workers: Worker[] }) {
  const [chosen] = useParam("worker");
  if (!workers.length)
    return (
      <Empty title="No worker runs">
        <p>
          A worker is started for each entry of <code>supported_models</code>. Why one is missing stands in the{" "}
          <Link to="/logs" params={{ event: "worker.*" }}>
            log
          </Link>
          .
        </p>
      </Empty>
    );
  return (
    <div class="grid-2">
      {workers.map((worker) => (
        <WorkerCard
          key={worker.base_model + worker.incarnation}
          worker={worker}
          chosen={serves(worker.base_model, chosen)}
        />
      ))}
    </div>
  );
}

function WorkerCard({ worker, chosen }: { worker: Worker; chosen: boolean }) {
  const samples = new Samples(worker.metrics);
  const blocks = (state: string) => samples.sum("tuft.kv_cache.blocks", { state });
  const adapters = (name: string, kind: string) => samples.sum(name, { kind });
  const memory = (part: string) => samples.sum("tuft.lora.memory", { part });
  const limit = samples.sum("tuft.lora.pool.memory", { state: "limit" });
  const reserved = samples.sum("tuft.lora.pool.memory", { state: "reserved" });
  return (
    <section class={classes("card worker", chosen && "chosen")} aria-label={`Worker of ${worker.base_model}`}>
      <div class="row spread">
        <h2 class="clip">{worker.base_model}</h2>
        <Badge tone={workerTone[worker.state]}>{worker.state}</Badge>
      </div>
      <Facts
        items={[
          [
            "Process",
            worker.pid
              ? `${worker.pid}, start ${worker.incarnation}, ${worker.threads ?? "?"} threads on ${worker.device ?? "?"}`
              : null,
          ],
          ["Engine busy", share(samples.sum("tuft.worker.busy"))],
          ["Utilization", utilization(samples)],
          ["In the engine", requests(samples)],
          [
            "Newest step",
            samples.sum("tuft.scheduler.last_step.age") === null
              ? null
              : age(samples.sum("tuft.scheduler.last_step.age")!),
          ],
          [
            "Memory",
            samples.sum("process.memory.usage") === null ? null : formatBytes(samples.sum("process.memory.usage")),
          ],
        ]}
      />
      <Meter
        title="KV cache"
        metric="tuft.kv_cache.blocks"
        parts={[
          ["used", blocks("used")],
          ["cached", blocks("cached")],
          ["free", blocks("free")],
        ]}
        unit="blocks"
        show={formatCount}
      />
      <Meter
        title="Adapters"
        metric="tuft.lora.adapters"
        parts={[
          ["training, resident", adapters("tuft.lora.adapters", "training")],
          ["sampling, resident", adapters("tuft.lora.adapters", "sampler")],
          ["training, paged", adapters("tuft.lora.adapters.paged", "training")],
          ["sampling, paged", adapters("tuft.lora.adapters.paged", "sampler")],
        ]}
        unit="adapters"
        show={formatNumber}
      />
      <Meter
        title="Memory of adapters"
        metric="tuft.lora.memory"
        parts={[
          ["weights", memory("weights")],
          ["optimizer", memory("optimizer")],
          ["gradients", memory("gradients")],
        ]}
        total={limit}
        unit={
          limit !== null
            ? `of ${formatBytes(limit)}${reserved !== null ? `, ${formatBytes(reserved)} reserved` : ""}`
            : ""
        }
        show={formatBytes}
      />
      <details>
        <summary>All its newest values ({Object.keys(worker.metrics).length})</summary>
        <div class="worker-metrics" tabIndex={0} role="region" aria-label="Newest values">
          <table>
            <tbody>
              {Object.entries(worker.metrics).map(([name, value]) => (
                <tr key={name}>
                  <th scope="row" class="mono">
                    {name}
                  </th>
                  <td class="num">{formatNumber(value)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </section>
  );
}

const share = (value: number | null) => (value === null ? null : formatShare(value));
const age = (seconds: number) => (seconds === 0 ? "nothing to do" : `${formatSeconds(seconds)} ago`);

function utilization(samples: Samples): string | null {
  const parts = [
    ["training", samples.sum("tuft.training.mfu")],
    ["sampling", samples.sum("tuft.sampling.mfu")],
  ].filter(([, value]) => value !== null);
  const peak = samples.sum("tuft.device.peak_flops");
  if (!parts.length) return null;
  const text = parts.map(([name, value]) => `${name} ${formatShare(value as number)}`).join(", ");
  return peak ? `${text} of ${formatCount(peak)}FLOP/s` : text;
}

function requests(samples: Samples): string | null {
  const running = samples.sum("tuft.scheduler.requests", { state: "running" });
  const waiting = samples.sum("tuft.scheduler.requests", { state: "waiting" });
  return running === null && waiting === null
    ? null
    : `${formatNumber(running ?? 0)} running, ${formatNumber(waiting ?? 0)} waiting`;
}

interface MeterProps {
  title: string;
  metric: string;
  parts: [string, number | null][];
  total?: number | null;
  unit: string;
  show: (value: number) => string;
}

/** A bar of parts with a legend; absent where nothing is known. */
function Meter({ title, metric, parts, total, unit, show }: MeterProps) {
  const known = parts.filter((part): part is [string, number] => part[1] !== null);
  if (!known.length) return null;
  const sum = known.reduce((all, [, value]) => all + value, 0);
  const whole = Math.max(total ?? sum, sum, 1e-9);
  const color = (name: string, i: number) => (name === "free" ? "var(--surface-3)" : `var(${seriesVar(i)})`);
  return (
    <div class="meter">
      <div class="row spread">
        <h3>
          <Link to="/metrics" params={{ metric }}>
            {title}
          </Link>
        </h3>
        <span class="muted">
          {show(sum)} {unit}
        </span>
      </div>
      <div class="bar" aria-hidden="true">
        {known.map(([name, value], i) =>
          value > 0 ? (
            <span key={name} style={{ width: `${(value / whole) * 100}%`, background: color(name, i) }} />
          ) : null,
        )}
      </div>
      <ul class="meter-legend">
        {known.map(([name, value], i) => (
          <li key={name}>
            <span class="swatch" style={{ background: color(name, i) }} />
            {name} <b>{show(value)}</b>
          </li>
        ))}
      </ul>
    </div>
  );
}
