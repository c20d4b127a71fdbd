// Two traces side by side: what each step took in the one and in the other.

import { useMemo, useState } from "preact/hooks";
import { observe } from "../../api/client.ts";
import type { Trace } from "../../api/types.ts";
import { useApi } from "../../api/use_api.ts";
import type { PageProps } from "../../app/pages.ts";
import { useChoice } from "../../app/router.ts";
import { formatDuration } from "../../lib/units.ts";
import { type ComparedRow, compareTraces, largestDifference } from "../../trace/compare.ts";
import { workColour, workKind } from "../../trace/palette.ts";
import { at, buildTree, NONE, num, type TraceTree } from "../../trace/tree.ts";
import { Duration, Empty, ErrorBox, Link, Segments, Skeleton, Time } from "../../ui/basics.tsx";
import { useTheme } from "../../ui/colors.ts";
import "./traces.css";

export default function ComparePage({ params }: PageProps) {
  const [left, right] = [params["left"] ?? "", params["right"] ?? ""];
  const a = useApi<Trace>(observe(`/traces/${encodeURIComponent(left)}`), { keep: false });
  const b = useApi<Trace>(observe(`/traces/${encodeURIComponent(right)}`), { keep: false });
  const failed = a.error ? { ...a, id: left } : b.error ? { ...b, id: right } : null;
  if (failed?.error) {
    return failed.error.status === 404 ? (
      <Empty title="One of the traces is not here">
        <p>
          The server keeps no trace <code>{failed.id}</code> that you may see. <Link to="/traces">Look for traces</Link>
        </p>
      </Empty>
    ) : (
      <ErrorBox error={failed.error} retry={failed.reload} />
    );
  }
  if (!a.data || !b.data) return <Skeleton height={420} />;
  return <Compared a={a.data} b={b.data} />;
}

function Compared({ a, b }: { a: Trace; b: Trace }) {
  const [measure, setMeasure] = useChoice("measure", ["total", "self"] as const, "total");
  const trees = useMemo(() => [buildTree(a.spans), buildTree(b.spans)] as const, [a, b]);
  const rows = useMemo(() => compareTraces(trees[0], trees[1]), [trees]);
  const first = largestDifference(rows);
  const slower = b.duration - a.duration;
  return (
    <>
      <div class="compare-heads">
        <Head trace={a} tree={trees[0]} letter="A" />
        <Head trace={b} tree={trees[1]} letter="B" />
      </div>
      <section class="card why" aria-label="The difference">
        <p class="why-summary">
          {Math.abs(slower) < a.duration * 0.005
            ? "Both took the same time."
            : `B took ${formatDuration(Math.abs(slower))} ${slower > 0 ? "longer" : "less"} than A${
                a.duration > 0 ? ` (${(b.duration / a.duration).toFixed(2)} times its duration)` : ""
              }.`}{" "}
          {first && (
            <>
              Most of the difference is the own time of <b>{first.name}</b>: {formatDuration(first.a.self)} in A,{" "}
              {formatDuration(first.b.self)} in B.
            </>
          )}
        </p>
      </section>
      <section class="card" aria-label="Steps">
        <div class="trace-tools">
          <Segments
            label="Measure"
            value={measure}
            options={[
              ["total", "Total time"],
              ["self", "Own time"],
            ]}
            onChange={setMeasure}
          />
          <span class="muted">Spans with the same path of names are added up.</span>
        </div>
        <Steps rows={rows} measure={measure} a={a} b={b} highlight={first?.path ?? ""} />
      </section>
    </>
  );
}

function Head({ trace, tree, letter }: { trace: Trace; tree: TraceTree; letter: string }) {
  const root = tree.order.length ? at(trace.spans, num(tree.order, 0)) : null;
  return (
    <section class="card compare-head" aria-label={`Trace ${letter}`}>
      <span class={`compare-letter ${letter.toLowerCase()}`}>{letter}</span>
      <div class="grow">
        <Link to={`/traces/${trace.trace_id}`} class="compare-name">
          {root?.name ?? trace.trace_id}
        </Link>
        <div class="muted">
          {trace.spans.length} spans, <Time at={trace.start} />
          {root?.user ? `, ${root.user}` : ""}
        </div>
      </div>
      <span class="trace-duration">
        <Duration micros={trace.duration} />
      </span>
    </section>
  );
}

type Measure = "total" | "self";

function Steps({
  rows,
  measure,
  a,
  b,
  highlight,
}: {
  rows: ComparedRow[];
  measure: Measure;
  a: Trace;
  b: Trace;
  highlight: string;
}) {
  const isDark = useTheme();
  const [folded, setFolded] = useState<ReadonlySet<string>>(new Set());
  const longest = Math.max(1, ...rows.flatMap((row) => [row.a[measure], row.b[measure]]));
  const shown = rows.filter((row) => ![...folded].some((path) => row.path.startsWith(`${path}/`)));
  const toggle = (path: string) => {
    const next = new Set(folded);
    if (!next.delete(path)) next.add(path);
    setFolded(next);
  };
  const colourOf = (row: ComparedRow) => {
    const span = row.b.longest !== NONE ? at(b.spans, row.b.longest) : at(a.spans, row.a.longest);
    return workColour(workKind(span), isDark ? "dark" : "light");
  };
  const open = (trace: Trace, span: number, text: string) =>
    span === NONE ? (
      <span class="muted">–</span>
    ) : (
      <Link to={`/traces/${trace.trace_id}`} params={{ span: at(trace.spans, span).span_id }}>
        {text}
      </Link>
    );
  return (
    <div class="compare-scroll">
      <table class="compare">
        <thead>
          <tr>
            <th scope="col">Step</th>
            <th scope="col" class="num">
              Spans A, B
            </th>
            <th scope="col">A over B</th>
            <th scope="col" class="num">
              A
            </th>
            <th scope="col" class="num">
              B
            </th>
            <th scope="col" class="num">
              B − A
            </th>
          </tr>
        </thead>
        <tbody>
          {shown.map((row) => {
            const difference = measure === "total" ? row.totalDifference : row.selfDifference;
            return (
              <tr key={row.path} class={row.path === highlight ? "on" : undefined}>
                <th scope="row" style={{ paddingLeft: `${8 + Math.min(row.depth, 14) * 14}px` }}>
                  {row.hasChildren ? (
                    <button
                      type="button"
                      class="fold"
                      aria-expanded={!folded.has(row.path)}
                      aria-label={`Steps below ${row.name}`}
                      onClick={() => toggle(row.path)}
                    >
                      {folded.has(row.path) ? "▸" : "▾"}
                    </button>
                  ) : (
                    <span class="fold" />
                  )}
                  {row.name}
                  {row.a.count === 0 && <span class="badge">only in B</span>}
                  {row.b.count === 0 && <span class="badge">only in A</span>}
                </th>
                <td class="num">{row.a.count === row.b.count ? row.a.count : `${row.a.count}, ${row.b.count}`}</td>
                <td>
                  <div class="compare-bars" aria-hidden="true">
                    <span
                      style={{ width: `${(row.a[measure] / longest) * 100}%`, backgroundColor: colourOf(row) }}
                      class="a"
                    />
                    <span style={{ width: `${(row.b[measure] / longest) * 100}%`, backgroundColor: colourOf(row) }} />
                  </div>
                </td>
                <td class="num">{open(a, row.a.longest, formatDuration(row.a[measure]))}</td>
                <td class="num">{open(b, row.b.longest, formatDuration(row.b[measure]))}</td>
                <td class={`num ${difference > 0 ? "more" : difference < 0 ? "less" : ""}`}>
                  {difference === 0 ? "0" : `${difference > 0 ? "+" : ""}${formatDuration(difference)}`}
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
