// One record with everything it says, and the ways from it to what belongs to it.

import type { AttributeValue, LogRecord } from "../../api/types.ts";
import { href, setParams } from "../../app/router.ts";
import { formatAbsolute } from "../../lib/time.ts";
import { Badge, Copy, Facts, Link, writeClipboard } from "../../ui/basics.tsx";
import { CloseIcon, CopyIcon, SearchIcon, TracesIcon } from "../../ui/icons.tsx";
import { levelTone } from "../../ui/levels.ts";

/** Attributes that are filters of this page, too. */
const filterOf: Record<string, string> = {
  "tuft.session_id": "session",
  "tuft.training_run_id": "run",
  "tuft.sampling_session_id": "sampler",
  "tuft.request_id": "request",
  "tuft.operation_type": "operation",
  "tuft.base_model": "base_model",
};
const around = 30e6; // microseconds before and after

const show = (value: AttributeValue) => (typeof value === "string" ? value : JSON.stringify(value));

function Filtered({ name, value }: { name: string; value: string }) {
  return (
    <span class="row tight attribute">
      <span class="attribute-value">{value}</span>
      <button
        type="button"
        class="btn quiet icon small"
        onClick={() => setParams({ [name]: value, line: null })}
        aria-label={`Show only lines with ${name} ${value}`}
        title={`Show only lines with this ${name}`}
      >
        <SearchIcon />
      </button>
    </span>
  );
}

export function Detail({ log, onClose }: { log: LogRecord; onClose: () => void }) {
  return (
    <aside class="drawer-pane log-detail" aria-label="Selected line">
      <div class="drawer-head">
        <Badge tone={levelTone[log.level]}>{log.level}</Badge>
        <h2>{log.event || "Record"}</h2>
        <button
          type="button"
          class="btn quiet icon small"
          title="Copy as JSON"
          aria-label="Copy as JSON"
          onClick={() => void writeClipboard(JSON.stringify(log, null, 2))}
        >
          <CopyIcon />
        </button>
        <button type="button" class="btn quiet icon small" aria-label="Close" onClick={onClose}>
          <CloseIcon />
        </button>
      </div>
      <div class="drawer-body">
        <p class="log-whole">{log.body}</p>
        <div class="row tight">
          {log.trace_id && (
            <a class="btn small primary" href={href(`/traces/${log.trace_id}`, { span: log.span_id })}>
              <TracesIcon />
              Its span
            </a>
          )}
          {log.trace_id && (
            <Link class="btn small" to="/logs" params={{ trace: log.trace_id }}>
              Lines of its trace
            </Link>
          )}
          <Link
            class="btn small"
            to="/logs"
            params={{ from: Math.floor(log.time - around), until: Math.ceil(log.time + around) }}
            title="All lines 30 s before and after"
          >
            What else happened
          </Link>
        </div>
        <Facts
          items={[
            ["Time", formatAbsolute(log.time)],
            ["User", log.user && <Filtered key="user" name="user" value={log.user} />],
            ["Event", log.event && <Filtered key="event" name="event" value={log.event} />],
            ["Service", log.service],
            ["Worker", log.worker],
            ["Scope", log.scope],
            ["Trace", log.trace_id && <Copy key="trace" text={log.trace_id} label="trace id" />],
            ["Span", log.span_id && <Copy key="span" text={log.span_id} label="span id" />],
          ]}
        />
        {Object.keys(log.attributes).length > 0 && (
          <div>
            <h3 class="attributes-title">Attributes</h3>
            <Facts
              items={Object.entries(log.attributes).map(([key, value]) => [
                key,
                filterOf[key] ? (
                  <Filtered key={key} name={filterOf[key]} value={show(value)} />
                ) : (
                  <code key={key}>{show(value)}</code>
                ),
              ])}
            />
          </div>
        )}
      </div>
    </aside>
  );
}
