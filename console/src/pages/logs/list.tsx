// The lines themselves: as in a terminal the newest is at the bottom, where the list stays while it is followed.

import type { VNode } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { LogRecord } from "../../api/types.ts";
import { findMatches } from "../../lib/query.ts";
import { formatAbsolute, formatClockMillis } from "../../lib/time.ts";
import { formatNumber } from "../../lib/units.ts";
import { classes, Link } from "../../ui/basics.tsx";
import { FollowIcon } from "../../ui/icons.tsx";
import { useNarrow, useVirtual } from "../../ui/table.tsx";
import { facts } from "./facts.ts";
import { lineKey } from "./stream.ts";

interface LogListProps {
  logs: LogRecord[];
  text: string;
  selected: string;
  onSelect: (log: LogRecord | null) => void;
  /** Shown above the oldest line. */
  head: string;
  onTop: () => void;
}

const nearBottom = 40;

export function LogList({ logs, text, selected, onSelect, head, onTop }: LogListProps) {
  const narrow = useNarrow();
  const rowHeight = narrow ? 46 : 26;
  const { ref, virtualizer } = useVirtual(logs.length, rowHeight, 10);
  const [pinned, setPinned] = useState(true);
  const [seen, setSeen] = useState(logs.at(-1)?.time ?? 0);
  const items = virtualizer.getVirtualItems();
  // Kept nodes call the newest function.
  const select = useRef(onSelect);
  select.current = onSelect;
  const selectLatest = useMemo(() => (log: LogRecord | null) => select.current(log), []);
  const drawn = useMemo(() => new DrawnLines(), []);
  drawn.begin();
  const firstTime = useRef<LogRecord | undefined>(undefined);
  const programmatic = useRef(false);

  // Older lines that came in above must not move what the reader looks at.
  useLayoutEffect(() => {
    const element = ref.current;
    const anchor = firstTime.current;
    firstTime.current = logs[0];
    if (!element || !anchor || anchor === logs[0] || pinned) return;
    const added = logs.indexOf(anchor);
    if (added > 0) {
      element.scrollTop += added * rowHeight;
      return;
    }
  }, [logs[0]]);
  useLayoutEffect(() => {
    const element = ref.current;
    if (!element || !pinned) return;
    programmatic.current = true;
    element.scrollTop = element.scrollHeight;
    setSeen(logs.at(-1)?.time ?? 0);
  }, [logs, pinned, rowHeight]);

  const onScroll = () => {
    const element = ref.current;
    if (!element) return;
    const atBottom = element.scrollHeight - element.scrollTop - element.clientHeight < nearBottom;
    if (programmatic.current) programmatic.current = false;
    else if (atBottom !== pinned) setPinned(atBottom);
    if (element.scrollTop < rowHeight * 100 && logs.length > 0 && !atBottom) onTop();
  };
  // A list shorter than its frame has nothing to scroll: ask for older lines at once.
  useEffect(() => {
    const element = ref.current;
    if (element && logs.length > 0 && element.scrollHeight <= element.clientHeight) onTop();
  }, [logs.length]);

  const selectedIndex = useMemo(
    () => (selected ? logs.findIndex((log) => lineKey(log) === selected) : -1),
    [logs, selected],
  );
  useEffect(() => {
    if (selectedIndex < 0) return;
    setPinned(false);
    virtualizer.scrollToIndex(selectedIndex, { align: "auto" });
  }, [selected, selectedIndex >= 0]);

  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const from = selectedIndex < 0 ? logs.length : selectedIndex;
    const moves: Record<string, number> = { ArrowDown: from + 1, j: from + 1, ArrowUp: from - 1, k: from - 1 };
    const target = moves[event.key];
    if (target !== undefined) {
      event.preventDefault();
      event.stopPropagation();
      const log = logs[Math.max(0, Math.min(target, logs.length - 1))];
      if (log) onSelect(log);
    } else if (event.key === "Escape" && selected) onSelect(null);
    else if (event.key === "End") {
      event.preventDefault();
      setPinned(true);
    } else if (event.key === "Home") {
      event.preventDefault();
      setPinned(false);
      virtualizer.scrollToIndex(0);
    }
  };
  const unseen = pinned ? 0 : countAfter(logs, seen);
  return (
    <div class="log-frame">
      <div
        ref={ref}
        class="log-list"
        role="grid"
        aria-label="Log lines, oldest first"
        aria-rowcount={logs.length}
        tabIndex={0}
        data-keys="table"
        aria-activedescendant={
          selectedIndex >= 0 && items.some((item) => item.index === selectedIndex) ? `log-${selectedIndex}` : undefined
        }
        onScroll={onScroll}
        onKeyDown={onKeyDown}
      >
        <div class="log-body" style={{ height: `${virtualizer.getTotalSize()}px` }} role="presentation">
          {items.map((item) => {
            const log = logs[item.index];
            if (!log) return null;
            return drawn.line(log, item.index, item.start, rowHeight, text, item.index === selectedIndex, selectLatest);
          })}
        </div>
      </div>
      <div class="log-status muted">
        <span class="clip grow">{head}</span>
        {!pinned && (
          <button type="button" class="btn small" onClick={() => setPinned(true)}>
            <FollowIcon />
            {unseen > 0 ? `${formatNumber(unseen)} new` : "To the newest"}
          </button>
        )}
      </div>
    </div>
  );
}

/** Lines later than a time; they are in the order of time but for a few. */
function countAfter(logs: LogRecord[], time: number): number {
  let low = 0;
  let high = logs.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (logs[middle]!.time <= time) low = middle + 1;
    else high = middle;
  }
  return logs.length - low;
}

/** Lines in view, drawn once: Preact skips a node that is the same as before, and scrolling only adds what comes in. */
class DrawnLines {
  private nodes = new Map<number, { key: string; log: LogRecord; node: VNode }>();
  private before = this.nodes;

  /** Called before each drawing: what it does not use is forgotten at the next. */
  begin() {
    this.before = this.nodes;
    this.nodes = new Map();
  }

  line(
    log: LogRecord,
    index: number,
    top: number,
    height: number,
    text: string,
    selected: boolean,
    onSelect: LineProps["onSelect"],
  ) {
    const key = `${top} ${height} ${selected} ${text}`;
    const known = this.before.get(index);
    const entry =
      known && known.key === key && known.log === log
        ? known
        : { key, log, node: <Line key={index} {...{ log, index, top, height, text, selected, onSelect }} /> };
    this.nodes.set(index, entry);
    return entry.node;
  }
}

interface LineProps {
  log: LogRecord;
  index: number;
  top: number;
  height: number;
  text: string;
  selected: boolean;
  onSelect: (log: LogRecord | null) => void;
}

function Line({ log, index, top, height, text, selected, onSelect }: LineProps) {
  return (
    <div
      id={`log-${index}`}
      class={classes("log-line", `level-${log.level}`, selected && "selected")}
      role="row"
      aria-selected={selected}
      aria-rowindex={index + 1}
      style={{ transform: `translateY(${top}px)`, height: `${height}px` }}
      onClick={(event) => {
        if ((event.target as HTMLElement).closest("a") || String(getSelection()) !== "") return;
        onSelect(selected ? null : log);
      }}
    >
      <span role="gridcell" class="log-time" title={formatAbsolute(log.time)}>
        {formatClockMillis(log.time)}
      </span>
      <span role="gridcell" class="log-level">
        {log.level}
      </span>
      <span role="gridcell" class="log-event clip">
        {log.event}
      </span>
      <span role="gridcell" class="log-text clip">
        <Marked body={log.body || log.event} text={text} />
        <span class="log-facts">{facts(log.attributes)}</span>
      </span>
      {log.trace_id && (
        <span role="gridcell" class="hide-phone">
          <Link
            to={`/traces/${log.trace_id}`}
            params={{ span: log.span_id }}
            class="log-trace"
            title="Open the trace of this line"
          >
            trace
          </Link>
        </span>
      )}
    </div>
  );
}

/** A text with the searched words marked. */
function Marked({ body, text }: { body: string; text: string }) {
  const matches = text ? findMatches(body, text) : [];
  if (!matches.length) return <>{body}</>;
  const parts = [];
  let at = 0;
  for (const [start, end] of matches) {
    parts.push(body.slice(at, start), <mark key={start}>{body.slice(start, end)}</mark>);
    at = end;
  }
  parts.push(body.slice(at));
  return <>{parts}</>;
}
