// What the pointer is over, in a few words beside it.

import { formatDuration } from "../lib/units.ts";
import { at, num } from "./tree.ts";
import type { TraceView } from "./use_trace_view.ts";

export interface TipState {
  readonly x: number;
  readonly y: number;
  readonly span: number;
}

export function Tip({ state, tip, width }: { state: TraceView; tip: TipState; width: number }) {
  const { tree, critical } = state;
  const record = at(tree.spans, tip.span);
  const duration = num(tree.end, tip.span) - num(tree.start, tip.span);
  const side = tip.x > width - 300 ? { right: `${Math.max(4, width - tip.x + 12)}px` } : { left: `${tip.x + 14}px` };
  const share = critical.share.get(tip.span);
  return (
    <div class="tl-tip" style={{ ...side, top: `${tip.y + 16}px` }} aria-hidden="true">
      <b>{record.name}</b>
      <div>
        {formatDuration(duration)}, {formatDuration(num(tree.self, tip.span))} its own
      </div>
      <div class="muted">
        {record.worker ? `${record.service} · ${record.worker}` : record.service}, at{" "}
        {formatDuration(num(tree.start, tip.span))}
      </div>
      {share !== undefined && <div class="muted">{formatDuration(share)} of the critical path</div>}
      {record.failed && <div class="tl-tip-bad">✕ {record.status_message || "failed"}</div>}
    </div>
  );
}
