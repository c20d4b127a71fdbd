import { who } from "../../api/client.ts";
import type { LogPage, ModelStatus, Overview, System, Tenant, TracePage } from "../../api/types.ts";
import type { Answer } from "../../api/use_api.ts";
import { formatBytes, formatCount, formatNumber, formatShare } from "../../lib/units.ts";
import { Badge, Card, Duration, Empty, ErrorBox, Facts, Link, Skeleton, Time } from "../../ui/basics.tsx";
import { seriesVar } from "../../ui/colors.ts";
import { CheckIcon } from "../../ui/icons.tsx";
import { levelTone } from "../../ui/levels.ts";
import { workerTone } from "../../ui/worker_states.ts";

export function Models({ overview }: { overview: Overview }) {
  if (!overview.models.length)
    return (
      <Card title="Models">
        <Empty title="No base model is configured">
          <p>
            Name one under <code>supported_models</code> in the configuration, and start the server again.
          </p>
        </Empty>
      </Card>
    );
  return (
    <div class="grid-2">
      {overview.models.map((model) => (
        <Model key={model.base_model} model={model} />
      ))}
    </div>
  );
}

function Model({ model }: { model: ModelStatus }) {
  const waiting = model.queue.training + model.queue.sampling;
  return (
    <section class="card model" aria-label={model.base_model}>
      <div class="row spread">
        <h3 class="clip grow">
          <Link to="/system" params={{ worker: model.base_model }}>
            {model.base_model}
          </Link>
        </h3>
        <Badge tone={workerTone[model.state]}>{model.state}</Badge>
      </div>
      <div class="model-facts">
        <span>
          <b>{formatNumber(model.queue.training)}</b> training waiting
        </span>
        <span>
          <b>{formatNumber(model.queue.sampling)}</b> sampling waiting
        </span>
        <span>
          last optimizer step{" "}
          <b>
            <Time at={model.last_step} />
          </b>
        </span>
        {model.incarnation > 1 && (
          <Link to="/logs" params={{ event: "worker.*" }}>
            started {model.incarnation} times
          </Link>
        )}
      </div>
      <p class="muted model-why">
        {model.why_waiting ?? (waiting ? "They wait for their turn." : "Nothing waits.")}{" "}
        {waiting > 0 && (
          <Link to="/traces" params={{ base_model: model.base_model, sort: "-duration" }}>
            Slowest requests
          </Link>
        )}
      </p>
    </section>
  );
}

export function Failures({ answer }: { answer: Answer<TracePage> }) {
  return (
    <Card
      title="Newest failures"
      actions={
        <Link to="/traces" params={{ status: "error" }}>
          All
        </Link>
      }
    >
      {answer.error ? (
        <ErrorBox error={answer.error} retry={answer.reload} />
      ) : !answer.data ? (
        <Skeleton height={120} />
      ) : answer.data.traces.length === 0 ? (
        <Empty icon={<CheckIcon />} title="No request failed in this time" />
      ) : (
        <ul class="lines">
          {answer.data.traces.map((trace) => (
            <li key={trace.trace_id}>
              <Link to={`/traces/${trace.trace_id}`} params={{ span: trace.match?.span_id }} class="clip grow">
                {trace.operation || trace.root.name}
              </Link>
              <span class="muted clip">{trace.user}</span>
              <Duration micros={trace.duration} />
              <span class="muted line-time">
                <Time at={trace.start} />
              </span>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

export function Warnings({ answer }: { answer: Answer<LogPage> }) {
  return (
    <Card
      title="Newest warnings and errors"
      actions={
        <Link to="/logs" params={{ level: "warning" }}>
          All
        </Link>
      }
    >
      {answer.error ? (
        <ErrorBox error={answer.error} retry={answer.reload} />
      ) : !answer.data ? (
        <Skeleton height={120} />
      ) : answer.data.logs.length === 0 ? (
        <Empty icon={<CheckIcon />} title="The log has no warning in this time" />
      ) : (
        <ul class="lines">
          {answer.data.logs.map((log, i) => (
            <li key={`${log.time}-${i}`}>
              <Badge tone={levelTone[log.level]}>{log.level}</Badge>
              {log.trace_id ? (
                <Link to={`/traces/${log.trace_id}`} params={{ span: log.span_id }} class="clip grow" title={log.body}>
                  {log.body}
                </Link>
              ) : (
                <Link to="/logs" params={{ event: log.event, level: "warning" }} class="clip grow" title={log.body}>
                  {log.body}
                </Link>
              )}
              <span class="muted line-time">
                <Time at={log.time} />
              </span>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

export function Shares({ tenants, operator }: { tenants: Tenant[] | undefined; operator: boolean }) {
  const title = operator ? "Who uses the engine" : "Your use";
  if (!tenants) return <Card title={title}>{<Skeleton height={120} />}</Card>;
  const used = [...tenants].sort((a, b) => (b.engine_share ?? 0) - (a.engine_share ?? 0));
  return (
    <Card title={title} actions={<Link to="/tenants">All</Link>}>
      {used.length === 0 ? (
        <Empty title="Nobody has used the server yet">
          <p>
            Point the Tinker SDK at this server: <code>TINKER_BASE_URL</code> and <code>TINKER_API_KEY</code>.
          </p>
        </Empty>
      ) : (
        <ul class="lines">
          {used.slice(0, 8).map((tenant, i) => (
            <li key={tenant.user} class="share-line">
              <Link to="/tenants" params={{ user: tenant.user }} class="clip share-name">
                {tenant.user}
              </Link>
              <span class="bar grow" aria-hidden="true">
                <span
                  style={{
                    width: `${Math.min(1, tenant.engine_share ?? 0) * 100}%`,
                    background: `var(${seriesVar(i)})`,
                  }}
                />
              </span>
              <b class="share-figure">{formatShare(tenant.engine_share)}</b>
              <span class="muted share-tokens hide-phone">
                {formatCount(tenant.tokens.train + tenant.tokens.input + tenant.tokens.output)} tokens in the last hour
              </span>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

export function TelemetryHealth({ system }: { system: System }) {
  const store = system.telemetry.store;
  if (!store)
    return (
      <Empty title="Telemetry is not kept">
        <p>
          Traces and logs are shown once <code>telemetry.store.enabled</code> is true.
        </p>
      </Empty>
    );
  const exported = system.telemetry.export;
  return (
    <Facts
      items={[
        [
          "Kept",
          `${formatCount(store.spans)} spans, ${formatCount(store.logs)} log records, ${formatNumber(store.series)} series`,
        ],
        ["Since", <Time key="since" at={store.oldest} />],
        [
          "Room",
          store.on_disk
            ? `${formatBytes(store.disk_bytes)} of ${formatBytes(store.disk_bytes_max)} on disk`
            : `${formatBytes(store.memory_bytes)} of memory, nothing on disk`,
        ],
        ["Lost", store.dropped_records ? `${formatNumber(store.dropped_records)} records` : "nothing"],
        ["Problem", store.problem],
        [
          "Exported",
          exported
            ? exported.enabled
              ? exported.signals.map((one) => (typeof one === "string" ? one : one.signal)).join(", ") || "nothing"
              : "no; telemetry.enabled is false"
            : null,
        ],
        [
          "More",
          who.value?.operator && (
            <Link key="more" to="/metrics" params={{ board: "telemetry" }}>
              What telemetry costs and loses
            </Link>
          ),
        ],
      ]}
    />
  );
}
