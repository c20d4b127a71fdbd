// All that is known of the selected span.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { AttributeValue, Span, Trace } from "../../api/types.ts";
import { formatDuration, formatShare } from "../../lib/units.ts";
import { WORK_WORDS, workKind } from "../../trace/palette.ts";
import { at, NONE, num } from "../../trace/tree.ts";
import type { TraceView } from "../../trace/use_trace_view.ts";
import { Badge, Copy, Facts, Link } from "../../ui/basics.tsx";
import { LogLine } from "./trace_logs.tsx";

/** Attributes by which traces are found, with the parameter and the page that they lead to. */
const SHARED: Readonly<Record<string, { filter: string; page?: string }>> = {
  "tuft.session_id": { filter: "session" },
  "tuft.training_run_id": { filter: "run", page: "/runs/" },
  "tuft.sampling_session_id": { filter: "sampler" },
  "tuft.request_id": { filter: "request" },
  "tuft.operation_type": { filter: "operation" },
  "tuft.base_model": { filter: "base_model" },
  "tuft.user_id": { filter: "user" },
};

export function SpanDetails({ state, trace }: { state: TraceView; trace: Trace }) {
  const { tree, selected } = state;
  if (selected === NONE) {
    return (
      <div class="span-none">
        <p>Select a span to see its attributes, events, links and logs.</p>
        <p class="muted">
          Click a row, or press <kbd>↓</kbd>. <kbd>]</kbd> goes along the critical path.
        </p>
      </div>
    );
  }
  const span = at(trace.spans, selected);
  const duration = num(tree.end, selected) - num(tree.start, selected);
  const shift = num(tree.shift, selected);
  const critical = state.critical.share.get(selected);
  const parent = num(tree.parent, selected);
  const logs = state.logsOf.get(selected) ?? [];
  return (
    <div class="span-details">
      <h2 class="span-name">{span.name}</h2>
      <div class="row tight">
        {span.failed && <Badge tone="bad">failed</Badge>}
        <Badge>{WORK_WORDS[workKind(span)]}</Badge>
        {span.kind !== "internal" && <Badge>{span.kind}</Badge>}
        {critical !== undefined && <Badge tone="accent">critical path</Badge>}
      </div>
      {span.status_message && <p class="span-status">{span.status_message}</p>}
      <Facts
        items={[
          ["Duration", `${formatDuration(duration)}, ${formatShare(duration / tree.duration)} of the trace`],
          ["Its own time", `${formatDuration(num(tree.self, selected))}, without what ran below it`],
          [
            "On critical path",
            critical === undefined
              ? null
              : `${formatDuration(critical)}, ${formatShare(critical / Math.max(1, state.critical.total))} of it`,
          ],
          ["Starts at", formatDuration(num(tree.start, selected))],
          ["Clock", shift ? `moved by ${formatDuration(shift)}: the other machine's clock is behind` : null],
          ["Runs in", span.worker ? `${span.service}, worker of ${span.worker}` : span.service],
          ["Scope", span.scope],
          ["User", span.user],
          ["Parent", parentOf(state, trace, parent, span)],
          ["Span", <Copy key="id" text={span.span_id} label="the span's id" />],
        ]}
      />
      <Attributes attributes={span.attributes} />
      <Events span={span} state={state} index={selected} />
      <Links span={span} trace={trace} state={state} />
      {logs.length > 0 && (
        <Section title="Logs" count={logs.length}>
          <ol class="trace-logs">
            {logs.map((k) => (
              <LogLine key={k} log={at(trace.logs, k)} origin={tree.origin} />
            ))}
          </ol>
        </Section>
      )}
      <div class="row tight">
        <Link
          to="/logs"
          params={{
            trace: trace.trace_id,
            span: span.span_id,
            from: Math.floor(trace.start - 60e6),
            until: Math.ceil(trace.start + trace.duration + 60e6),
          }}
          class="btn small"
        >
          Open in logs
        </Link>
        <Link to="/traces" params={{ name: span.name }} class="btn small">
          Traces with this span
        </Link>
      </div>
    </div>
  );
}

function parentOf(state: TraceView, trace: Trace, parent: number, span: Span): ComponentChildren {
  if (parent !== NONE) {
    return (
      <button type="button" class="link-btn" onClick={() => state.select(parent)}>
        {at(trace.spans, parent).name}
      </button>
    );
  }
  if (state.tree.orphan[state.selected]) return `${span.parent_id}, which is not kept or not yours`;
  return null;
}

function Section({ title, count, children }: { title: string; count: number; children: ComponentChildren }) {
  const [open, setOpen] = useState(true);
  if (count === 0) return null;
  return (
    <section class="span-section">
      <h3>
        <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
          <span class="fold" aria-hidden="true">
            {open ? "▾" : "▸"}
          </span>
          {title} <span class="muted">{count}</span>
        </button>
      </h3>
      {open && children}
    </section>
  );
}

function Attributes({ attributes }: { attributes: Span["attributes"] }) {
  const entries = Object.entries(attributes);
  return (
    <Section title="Attributes" count={entries.length}>
      <AttributeList entries={entries} />
    </Section>
  );
}

function AttributeList({ entries }: { entries: [string, AttributeValue][] }) {
  return (
    <dl class="attributes">
      {entries.map(([key, value]) => (
        <div key={key}>
          <dt>{key}</dt>
          <dd>
            <AttributeText name={key} value={value} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

function AttributeText({ name, value }: { name: string; value: AttributeValue }) {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  const shared = SHARED[name];
  if (!shared || typeof value !== "string") return <code>{text}</code>;
  return (
    <>
      <Copy text={text} label={name} />{" "}
      {shared.page ? <Link to={shared.page + encodeURIComponent(text)}>open</Link> : null}{" "}
      <Link to="/traces" params={{ [shared.filter]: text }}>
        traces
      </Link>
    </>
  );
}

function Events({ span, state, index }: { span: Span; state: TraceView; index: number }) {
  const { tree } = state;
  return (
    <Section title="Events" count={span.events.length}>
      <ol class="span-events">
        {span.events.map((event, i) => (
          <li key={`${event.time}${i}`}>
            <div class="row tight">
              <b>{event.name}</b>
              <span class="muted">{formatDuration(event.time - tree.origin + num(tree.shift, index))}</span>
            </div>
            {Object.keys(event.attributes).length > 0 && <AttributeList entries={Object.entries(event.attributes)} />}
          </li>
        ))}
      </ol>
    </Section>
  );
}

/** Links to spans, of this trace or another, and the spans elsewhere that name this one. */
function Links({ span, trace, state }: { span: Span; trace: Trace; state: TraceView }) {
  const from = trace.linked_from.filter((link) => link.to_span_id === span.span_id);
  const target = (traceId: string, spanId: string, name: string) => {
    const here = traceId === trace.trace_id ? state.tree.find(spanId) : NONE;
    if (here !== NONE) {
      return (
        <button type="button" class="link-btn" onClick={() => state.select(here)}>
          {at(trace.spans, here).name}
        </button>
      );
    }
    return (
      <Link to={`/traces/${traceId}`} params={{ span: spanId }}>
        {name}
      </Link>
    );
  };
  return (
    <Section title="Links" count={span.links.length + from.length}>
      <ul class="span-links">
        {span.links.map((link) => (
          <li key={`to${link.trace_id}${link.span_id}`}>
            <span class="muted">to</span>{" "}
            {target(link.trace_id, link.span_id, `span ${link.span_id.slice(0, 8)} of another trace`)}
            {Object.keys(link.attributes).length > 0 && <AttributeList entries={Object.entries(link.attributes)} />}
          </li>
        ))}
        {from.map((link) => (
          <li key={`from${link.trace_id}${link.span_id}`}>
            <span class="muted">from</span> {target(link.trace_id, link.span_id, link.name)}
          </li>
        ))}
      </ul>
    </Section>
  );
}
