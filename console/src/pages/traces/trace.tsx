// One trace: why it took its time, its spans as a picture or a table, and all about the selected one.

import { useMemo, useState } from "preact/hooks";
import { observe } from "../../api/client.ts";
import type { Trace } from "../../api/types.ts";
import { useApi } from "../../api/use_api.ts";
import type { PageProps } from "../../app/pages.ts";
import { useChoice } from "../../app/router.ts";
import { usePageTitle } from "../../app/shell.tsx";
import { serverNow } from "../../app/state.ts";
import { formatNumber } from "../../lib/units.ts";
import { MinimapStrip } from "../../trace/minimap_strip.tsx";
import { Timeline } from "../../trace/timeline.tsx";
import { at, num } from "../../trace/tree.ts";
import { type TraceView, useTraceView } from "../../trace/use_trace_view.ts";
import { Badge, Copy, Duration, Empty, ErrorBox, Link, Skeleton, Time, writeClipboard } from "../../ui/basics.tsx";
import { CheckIcon, DownloadIcon, LinkIcon } from "../../ui/icons.tsx";
import { Tabs } from "../../ui/overlays.tsx";
import { CompareWith } from "./compare_with.tsx";
import { Explanation } from "./explanation.tsx";
import { SpanDetails } from "./span_details.tsx";
import { SpanTable } from "./span_table.tsx";
import { KindLegend, TraceToolbar, VIEWS, type ViewName } from "./toolbar.tsx";
import { TraceLogs } from "./trace_logs.tsx";
import "./traces.css";

/** Spans of a request still arrive for a while after its end. */
const FRESH_MICROS = 20e6;

export default function TracePage({ params }: PageProps) {
  const id = params["id"] ?? "";
  const [fresh, setFresh] = useState(true);
  const { data, error, loading, reload } = useApi<Trace>(observe(`/traces/${encodeURIComponent(id)}`), {
    every: fresh ? 2000 : 0,
    keep: false,
  });
  const stillFresh = data !== undefined && serverNow() - (data.start + data.duration) < FRESH_MICROS;
  if (data && fresh !== stillFresh) setFresh(stillFresh);
  if (error?.status === 404) return <Unknown id={id} />;
  if (error && !data) return <ErrorBox error={error} retry={reload} />;
  if (loading || !data) return <Loading />;
  if (data.spans.length === 0) return <Unknown id={id} />;
  return <Shown key={id} trace={data} />;
}

function Unknown({ id }: { id: string }) {
  return (
    <Empty title="This trace is not here">
      <p>
        The server keeps no trace <code>{id}</code> that you may see. It may be older than the store keeps, or belong to
        another user. <Link to="/traces">Look for traces</Link>
      </p>
    </Empty>
  );
}

function Loading() {
  return (
    <>
      <Skeleton height={56} />
      <Skeleton height={110} />
      <Skeleton height={420} />
    </>
  );
}

/** The same trace as long as nothing was added to it, so that a poll does not lay it out anew. */
function useSteady(trace: Trace): Trace {
  const [held, setHeld] = useState(trace);
  const same =
    held === trace ||
    (held.spans.length === trace.spans.length &&
      held.logs.length === trace.logs.length &&
      held.duration === trace.duration);
  if (!same) setHeld(trace);
  return same ? held : trace;
}

function Shown({ trace: newest }: { trace: Trace }) {
  const trace = useSteady(newest);
  const state = useTraceView(trace);
  const [view, setView] = useChoice<ViewName>("view", VIEWS, "waterfall");
  const [panel, setPanel] = useChoice("panel", ["span", "logs"] as const, "span");
  const root = at(trace.spans, num(state.tree.order, 0));
  usePageTitle(root.name);
  return (
    <>
      <Header trace={trace} state={state} />
      {trace.explanation && <Explanation answer={trace.explanation} state={state} />}
      <div class="trace-body">
        <section class="card trace-main" aria-label="Spans">
          <TraceToolbar state={state} view={view} setView={setView} />
          {view !== "table" && <MinimapStrip state={state} />}
          {view === "table" ? <SpanTable trace={trace} state={state} /> : <Timeline state={state} mode={view} />}
          {state.colourBy === "kind" && view !== "table" && <KindLegend state={state} />}
        </section>
        <aside class="card trace-side" aria-label="Details">
          <Tabs
            label="Details"
            value={panel}
            tabs={[
              ["span", "Span"],
              ["logs", `Logs ${trace.logs.length ? formatNumber(trace.logs.length) : ""}`],
            ]}
            onChange={setPanel}
          >
            {panel === "logs" ? <TraceLogs trace={trace} state={state} /> : <SpanDetails state={state} trace={trace} />}
          </Tabs>
        </aside>
      </div>
    </>
  );
}

function Header({ trace, state }: { trace: Trace; state: TraceView }) {
  const root = at(trace.spans, num(state.tree.order, 0));
  // A trace may have a hundred thousand spans, and the header is drawn with each step of a zoom.
  const { failed, processes } = useMemo(() => countSpans(trace), [trace]);
  return (
    <div class="trace-head">
      <dl class="trace-facts">
        <div>
          <dt>Duration</dt>
          <dd class="trace-duration">
            <Duration micros={trace.duration} />
          </dd>
        </div>
        <div>
          <dt>Started</dt>
          <dd>
            <Time at={trace.start} clock />{" "}
            <span class="muted">
              (<Time at={trace.start} />)
            </span>
          </dd>
        </div>
        <div>
          <dt>Spans</dt>
          <dd>
            {formatNumber(trace.spans.length)} {failed > 0 && <Badge tone="bad">{formatNumber(failed)} failed</Badge>}
            {trace.truncated && (
              <Badge
                tone="warn"
                title="The earliest spans are shown; the trace has more than the server sends at once."
              >
                cut off
              </Badge>
            )}
          </dd>
        </div>
        <div>
          <dt>Processes</dt>
          <dd title={processes.join("\n")}>{processes.length}</dd>
        </div>
        {root.user && (
          <div>
            <dt>User</dt>
            <dd>
              <Link to="/traces" params={{ user: root.user }}>
                {root.user}
              </Link>
            </dd>
          </div>
        )}
        <div>
          <dt>Trace</dt>
          <dd>
            <Copy text={trace.trace_id} short={12} label="the trace's id" />
          </dd>
        </div>
      </dl>
      <div class="row tight">
        <CopyLink />
        <CompareWith trace={trace} name={root.name} />
        <a
          class="btn small"
          href={observe(`/traces/${trace.trace_id}/perfetto`)}
          download={`${trace.trace_id}.json`}
          title="A file for ui.perfetto.dev"
          onClick={downloadPerfetto(trace.trace_id)}
        >
          <DownloadIcon /> Perfetto
        </a>
      </div>
    </div>
  );
}

function countSpans(trace: Trace): { failed: number; processes: string[] } {
  let failed = 0;
  const processes = new Set<string>();
  for (const span of trace.spans) {
    if (span.failed) ++failed;
    processes.add(span.worker ? `${span.service} · ${span.worker}` : span.service);
  }
  return { failed, processes: [...processes] };
}

/** The cookie alone opens nothing: the header has to be there, too, which a plain link does not send. */
function downloadPerfetto(id: string) {
  return async (event: MouseEvent) => {
    event.preventDefault();
    const { downloadFile } = await import("../../lib/download.ts");
    await downloadFile(observe(`/traces/${id}/perfetto`), `tuft-trace-${id}.json`);
  };
}

function CopyLink() {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    if (!(await writeClipboard(location.href))) return;
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <button
      type="button"
      class="btn small"
      onClick={copy}
      title="The address holds the selection, the zoom and the search"
    >
      {copied ? <CheckIcon /> : <LinkIcon />} {copied ? "Copied" : "Copy link"}
    </button>
  );
}
