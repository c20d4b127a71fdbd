// How a trace is looked at: what is selected, zoomed, folded and searched for. All but the folds stands in the address.

import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Trace } from "../api/types.ts";
import { setParams, useChoice, useParam } from "../app/router.ts";
import { useTheme } from "../ui/colors.ts";
import { type CriticalPath, readCriticalPath } from "./critical.ts";
import { logsBySpan, type TraceLog } from "./marks.ts";
import { type ColourBy, colourSpans } from "./palette.ts";
import { layoutRows, type Rows } from "./rows.ts";
import { type Matches, searchSpans } from "./search.ts";
import { at, buildTree, NONE, type TraceTree } from "./tree.ts";
import { clampViewport, formatZoom, isWhole, parseZoom, type Viewport } from "./viewport.ts";

export const COLOUR_CHOICES: readonly (readonly [ColourBy, string])[] = [
  ["kind", "Kind of work"],
  ["service", "Service"],
  ["worker", "Worker"],
  ["name", "Name"],
];

export interface TraceView {
  readonly tree: TraceTree;
  readonly rows: Rows;
  readonly view: Viewport;
  readonly setView: (view: Viewport) => void;
  readonly selected: number;
  readonly select: (span: number) => void;
  readonly collapsed: ReadonlySet<number>;
  readonly setCollapsed: (collapsed: ReadonlySet<number>) => void;
  readonly toggle: (span: number) => void;
  readonly search: string;
  readonly setSearch: (text: string) => void;
  readonly matches: Matches | null;
  readonly critical: CriticalPath;
  readonly onlyCritical: boolean;
  readonly setOnlyCritical: (only: boolean) => void;
  readonly colourBy: ColourBy;
  readonly setColourBy: (by: ColourBy) => void;
  readonly colours: readonly string[];
  readonly logs: readonly TraceLog[];
  readonly logsOf: ReadonlyMap<number, readonly number[]>;
}

/** Milliseconds of rest after which a zoom is written into the address; browsers limit how often that may be. */
const ZOOM_REST = 300;

export function useTraceView(trace: Trace): TraceView {
  const tree = useMemo(() => buildTree(trace.spans), [trace]);
  const critical = useMemo(() => readCriticalPath(tree, trace.critical_path), [tree, trace]);
  const logsOf = useMemo(() => logsBySpan(tree, trace.logs), [tree, trace]);
  const [collapsed, setCollapsed] = useState<ReadonlySet<number>>(() => new Set());
  const rows = useMemo(() => layoutRows(tree, collapsed), [tree, collapsed]);

  const [span, setSpan] = useParam("span");
  const selected = span ? tree.find(span) : NONE;
  const [search, setSearch] = useParam("q");
  const matches = useMemo(() => searchSpans(tree, search), [tree, search]);
  const [only, setOnly] = useParam("critical");
  const [colourBy, setColourBy] = useChoice<ColourBy>("colour", ["kind", "service", "worker", "name"], "kind");
  const isDark = useTheme();
  const colours = useMemo(() => colourSpans(tree.spans, colourBy, isDark ? "dark" : "light"), [tree, colourBy, isDark]);

  const [zoom] = useParam("zoom");
  const whole = { from: 0, to: tree.duration };
  const [view, setViewNow] = useState<Viewport>(() => clampViewport(parseZoom(zoom) ?? whole, tree.duration));
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const setView = useCallback(
    (next: Viewport) => {
      setViewNow(next);
      clearTimeout(timer.current);
      timer.current = setTimeout(
        () => setParams({ zoom: isWhole(next, tree.duration) ? null : formatZoom(next) }, true),
        ZOOM_REST,
      );
    },
    [tree],
  );
  useEffect(() => () => clearTimeout(timer.current), []);
  // The numbers of spans are those of one answer: another one forgets the folds and fits the window.
  const known = useRef(tree);
  if (known.current !== tree) {
    const wasWhole = isWhole(view, known.current.duration);
    known.current = tree;
    if (collapsed.size) setCollapsed(new Set());
    setViewNow(clampViewport(wasWhole ? whole : view, tree.duration));
  }

  return {
    tree,
    rows,
    view,
    setView,
    selected,
    select: (next) => setSpan(next === NONE ? null : at(tree.spans, next).span_id),
    collapsed,
    setCollapsed,
    toggle(next) {
      const changed = new Set(collapsed);
      if (!changed.delete(next)) changed.add(next);
      setCollapsed(changed);
    },
    search,
    setSearch,
    matches,
    critical,
    onlyCritical: only === "1",
    setOnlyCritical: (value) => setOnly(value ? "1" : null),
    colourBy,
    setColourBy,
    colours,
    logs: trace.logs,
    logsOf,
  };
}
