// The spans of a trace as a table: what the pictures show, for keyboards and screen readers, and to sort.

import { useMemo } from "preact/hooks";
import type { Span, Trace } from "../../api/types.ts";
import { formatDuration, formatShare } from "../../lib/units.ts";
import { at, num } from "../../trace/tree.ts";
import type { TraceView } from "../../trace/use_trace_view.ts";
import { Badge } from "../../ui/basics.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";

interface Row {
  index: number;
  span: Span;
}

export function SpanTable({ trace, state }: { trace: Trace; state: TraceView }) {
  const { tree, matches, critical } = state;
  const rows = useMemo(() => {
    const list: Row[] = [];
    for (const index of tree.order) {
      if (matches && matches.matched[index] !== 1) continue;
      if (state.onlyCritical && critical.onPath[index] !== 1) continue;
      list.push({ index, span: at(trace.spans, index) });
    }
    return list;
  }, [tree, trace, matches, critical, state.onlyCritical]);
  const duration = (row: Row) => num(tree.end, row.index) - num(tree.start, row.index);
  const columns: Column<Row>[] = [
    {
      key: "name",
      title: "Span",
      width: "minmax(200px, 2.2fr)",
      sort: (row) => row.span.name,
      render: (row) => (
        <span style={{ paddingLeft: `${Math.min(num(tree.depth, row.index), 16) * 12}px` }} title={row.span.name}>
          {row.span.name} {row.span.failed && <Badge tone="bad">failed</Badge>}
        </span>
      ),
    },
    {
      key: "service",
      title: "Runs in",
      width: "minmax(90px, 1fr)",
      sort: (row) => row.span.worker || row.span.service,
      render: (row) => row.span.worker || row.span.service,
    },
    {
      key: "start",
      title: "Starts at",
      width: "96px",
      right: true,
      sort: (row) => num(tree.start, row.index),
      render: (row) => formatDuration(num(tree.start, row.index)),
    },
    {
      key: "duration",
      title: "Duration",
      width: "96px",
      right: true,
      sort: duration,
      render: (row) => formatDuration(duration(row)),
    },
    {
      key: "self",
      title: "Its own",
      width: "96px",
      right: true,
      sort: (row) => num(tree.self, row.index),
      render: (row) => formatDuration(num(tree.self, row.index)),
    },
    {
      key: "critical",
      title: "Critical",
      width: "80px",
      right: true,
      sort: (row) => critical.share.get(row.index) ?? 0,
      render: (row) => {
        const share = critical.share.get(row.index);
        return share === undefined ? "" : formatShare(share / Math.max(1, critical.total));
      },
    },
  ];
  return (
    <DataTable
      label="Spans"
      rows={rows}
      columns={columns}
      rowKey={(row) => String(row.index)}
      selected={String(state.selected)}
      framed={false}
      onOpen={(row) => state.select(row.index)}
    />
  );
}
