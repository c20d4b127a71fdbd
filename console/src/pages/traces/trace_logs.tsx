// The log records of a trace, in order of time, each leading to its span.

import type { LogRecord, Trace } from "../../api/types.ts";
import { formatDuration } from "../../lib/units.ts";
import { levelRank } from "../../trace/marks.ts";
import { at, NONE } from "../../trace/tree.ts";
import type { TraceView } from "../../trace/use_trace_view.ts";
import { classes } from "../../ui/basics.tsx";

const LETTERS = ["D", "I", "W", "E"];

export function LogLine({
  log,
  origin,
  onOpen,
  selected,
}: {
  log: LogRecord;
  origin: number;
  onOpen?: (() => void) | undefined;
  selected?: boolean;
}) {
  const rank = levelRank(log.level);
  const body = (
    <>
      <span class="log-time">{formatDuration(Math.max(0, log.time - origin))}</span>
      <span class={classes("log-level", rank >= 3 && "bad", rank === 2 && "warn")} title={log.level}>
        {LETTERS[rank] ?? "I"}
      </span>
      <span class="log-body">
        {log.event && <b>{log.event}</b>} {log.body}
      </span>
    </>
  );
  return (
    <li class={classes(selected && "on")}>
      {onOpen ? (
        <button type="button" onClick={onOpen}>
          {body}
        </button>
      ) : (
        <div>{body}</div>
      )}
    </li>
  );
}

/** More than this is slow to lay out; the page of logs has no such limit. */
const SHOWN_MAX = 500;

export function TraceLogs({ trace, state }: { trace: Trace; state: TraceView }) {
  if (trace.logs.length === 0) return <p class="span-none muted">No log record was written in this trace.</p>;
  return (
    <>
      <ol class="trace-logs">
        {trace.logs.slice(0, SHOWN_MAX).map((log, i) => {
          const span = log.span_id ? state.tree.find(log.span_id) : NONE;
          return (
            <LogLine
              key={`${log.time}${i}`}
              log={at(trace.logs, i)}
              origin={state.tree.origin}
              selected={span !== NONE && span === state.selected}
              onOpen={span === NONE ? undefined : () => state.select(span)}
            />
          );
        })}
      </ol>
      {trace.logs.length > SHOWN_MAX && (
        <p class="muted">
          The first {SHOWN_MAX} of {trace.logs.length} records.
        </p>
      )}
    </>
  );
}
