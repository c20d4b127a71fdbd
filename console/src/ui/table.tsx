// A table that draws only the rows in view, so that a hundred thousand of them scroll as smoothly as ten.
//
// The keyboard: arrows or j and k move the active row, Enter opens it, Home and End go to the ends.

import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "@tanstack/virtual-core";
import type { ComponentChildren, VNode } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { useParam } from "../app/router.ts";
import { classes } from "./basics.tsx";
import { ChevronDown, ChevronUp } from "./icons.tsx";

export interface Column<Row> {
  key: string;
  title: ComponentChildren;
  render: (row: Row, index: number) => ComponentChildren;
  /** The value to sort by; without it the column cannot be sorted. */
  sort?: (row: Row) => number | string | null | undefined;
  /** A CSS grid track, such as "120px" or "minmax(160px, 2fr)" (the default is "1fr"). */
  width?: string;
  right?: boolean;
  /** Left out on narrow screens. */
  wide?: boolean;
  hint?: string;
}

interface TableProps<Row> {
  label: string;
  columns: Column<Row>[];
  rows: Row[];
  rowKey: (row: Row) => string;
  onOpen?: (row: Row) => void;
  selected?: string | null;
  /** The parameter of the address that holds the order; several tables on a page need names of their own. */
  sortParam?: string;
  /** "key" or "-key" (descending), before the reader chooses. */
  defaultSort?: string;
  /** The height of the visible part: "fill" takes the parent's, "auto" grows with the rows up to 20 of them. */
  height?: "fill" | "auto" | number;
  framed?: boolean;
  empty?: ComponentChildren;
  /** Below the last row, such as a button for more. */
  foot?: ComponentChildren;
  /** Called when the last row comes near. */
  onEnd?: () => void;
  rowClass?: (row: Row) => string | undefined;
}

export function sortRows<Row>(rows: Row[], columns: Column<Row>[], order: string): Row[] {
  const descending = order.startsWith("-");
  const column = columns.find((candidate) => candidate.key === order.replace(/^-/, ""));
  if (!column?.sort) return rows;
  const value = column.sort;
  const sign = descending ? -1 : 1;
  return [...rows].sort((a, b) => {
    const left = value(a);
    const right = value(b);
    // Rows without a value come last in both directions.
    const noLeft = left === null || left === undefined;
    const noRight = right === null || right === undefined;
    if (noLeft || noRight) return Number(noLeft) - Number(noRight);
    if (typeof left === "string" || typeof right === "string")
      return sign * String(left).localeCompare(String(right), "en", { numeric: true });
    return sign * (left - right);
  });
}

/** Whether the viewport is as narrow as a phone's. */
export function useNarrow(): boolean {
  const [narrow, setNarrow] = useState(() => matchMedia("(max-width: 820px)").matches);
  useEffect(() => {
    const query = matchMedia("(max-width: 820px)");
    const follow = () => setNarrow(query.matches);
    query.addEventListener("change", follow);
    return () => query.removeEventListener("change", follow);
  }, []);
  return narrow;
}

/** Draws a long list by parts. Returns the virtualizer; put `ref` on the scrolling element. */
export function useVirtual(count: number, rowHeight: number, overscan = 12) {
  const ref = useRef<HTMLDivElement>(null);
  const [, redraw] = useState(0);
  const virtualizer = useMemo(
    () =>
      new Virtualizer<HTMLDivElement, HTMLDivElement>({
        count,
        getScrollElement: () => ref.current,
        estimateSize: () => rowHeight,
        overscan,
        observeElementRect,
        observeElementOffset,
        scrollToFn: elementScroll,
        onChange: () => redraw((value) => value + 1),
      }),
    [rowHeight, overscan],
  );
  virtualizer.setOptions({ ...virtualizer.options, count, estimateSize: () => rowHeight });
  useLayoutEffect(() => virtualizer._didMount(), [virtualizer]);
  useLayoutEffect(() => virtualizer._willUpdate());
  return { ref, virtualizer };
}

/** Draws a row once, as long as the table's properties are the same: scrolling only draws what comes into view. */
function useDrawn<Row>(props: TableProps<Row>) {
  const kept = useRef<{ props: unknown; nodes: Map<Row, { form: string; node: VNode }> }>({ props, nodes: new Map() });
  const before = kept.current.props === props ? kept.current.nodes : new Map<Row, { form: string; node: VNode }>();
  const nodes = new Map<Row, { form: string; node: VNode }>();
  kept.current = { props, nodes };
  return (row: Row, form: string, draw: () => VNode): VNode => {
    const known = before.get(row);
    const entry = known?.form === form ? known : { form, node: draw() };
    nodes.set(row, entry);
    return entry.node;
  };
}

const rowHeightNow = (): number =>
  Number.parseInt(getComputedStyle(document.documentElement).getPropertyValue("--row"), 10) || 34;

export function DataTable<Row>(props: TableProps<Row>) {
  const { label, rowKey, onOpen, selected, height = "auto", framed = true } = props;
  const narrow = useNarrow();
  const [order, setOrder] = useParam(props.sortParam ?? "sort", props.defaultSort ?? "");
  const columns = narrow ? props.columns.filter((column) => !column.wide) : props.columns;
  const rows = useMemo(() => sortRows(props.rows, props.columns, order), [props.rows, order, props.columns.length]);
  const [active, setActive] = useState<string | null>(null);
  const rowHeight = useMemo(rowHeightNow, []);
  const { ref, virtualizer } = useVirtual(rows.length, rowHeight);
  const tracks = columns.map((column) => column.width ?? "minmax(0, 1fr)").join(" ");
  const items = virtualizer.getVirtualItems();
  const last = items.at(-1)?.index ?? -1;

  useEffect(() => {
    if (props.onEnd && rows.length > 0 && last >= rows.length - 8) props.onEnd();
  }, [last, rows.length]);

  const activeIndex = active === null ? -1 : rows.findIndex((row) => rowKey(row) === active);
  const moveTo = (index: number) => {
    const row = rows[Math.max(0, Math.min(index, rows.length - 1))];
    if (!row) return;
    setActive(rowKey(row));
    virtualizer.scrollToIndex(rows.indexOf(row), { align: "auto" });
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (
      event.metaKey ||
      event.ctrlKey ||
      event.altKey ||
      (event.target as HTMLElement).closest("input, select, textarea")
    )
      return;
    const page = Math.max(1, Math.floor((ref.current?.clientHeight ?? 400) / rowHeight) - 2);
    const moves: Record<string, number> = {
      ArrowDown: activeIndex + 1,
      j: activeIndex + 1,
      ArrowUp: activeIndex - 1,
      k: activeIndex - 1,
      PageDown: activeIndex + page,
      PageUp: activeIndex - page,
      Home: 0,
      End: rows.length - 1,
    };
    const target = moves[event.key];
    if (target !== undefined) {
      event.preventDefault();
      event.stopPropagation();
      moveTo(target);
    } else if (event.key === "Enter" && event.target === ref.current && rows[activeIndex]) {
      event.preventDefault();
      onOpen?.(rows[activeIndex]);
    }
  };
  const sortBy = (column: Column<Row>) => {
    const natural = column.right ? `-${column.key}` : column.key;
    const opposite = column.right ? column.key : `-${column.key}`;
    setOrder(order === natural ? opposite : order === opposite && order !== (props.defaultSort ?? "") ? null : natural);
  };

  const bodyHeight = virtualizer.getTotalSize();
  const size =
    height === "auto"
      ? { maxHeight: `${rowHeight * 20 + 36}px` }
      : height === "fill"
        ? { height: "100%" }
        : { height: `${height}px` };
  const drawn = useDrawn(props);
  const idOf = (key: string) => `row-${label}-${key}`.replace(/[^\w-]/g, "_");
  return (
    <div
      ref={ref}
      class={classes("table", framed && "framed")}
      style={size}
      role="grid"
      aria-label={label}
      aria-rowcount={rows.length + 1}
      aria-activedescendant={
        activeIndex >= 0 && items.some((item) => item.index === activeIndex) ? idOf(active!) : undefined
      }
      tabIndex={0}
      data-keys="table"
      onKeyDown={onKeyDown}
    >
      <div class="table-inner" role="presentation">
        <div class="table-head" role="row" aria-rowindex={1} style={{ gridTemplateColumns: tracks }}>
          {columns.map((column) => {
            const direction =
              order === column.key ? "ascending" : order === `-${column.key}` ? "descending" : undefined;
            return (
              <div
                key={column.key}
                class={classes("cell", column.right && "right")}
                role="columnheader"
                aria-sort={column.sort ? (direction ?? "none") : undefined}
                title={column.hint}
              >
                {column.sort ? (
                  <button type="button" class="sort" onClick={() => sortBy(column)}>
                    {column.title}
                    {direction === "ascending" && <ChevronUp />}
                    {direction === "descending" && <ChevronDown />}
                  </button>
                ) : (
                  <span>{column.title}</span>
                )}
              </div>
            );
          })}
        </div>
        <div class="table-body" role="rowgroup" style={{ height: `${bodyHeight}px` }}>
          {items.map((item) => {
            const row = rows[item.index];
            if (!row) return null;
            const key = rowKey(row);
            const form = `${item.start} ${active === key} ${selected === key} ${tracks}`;
            return drawn(row, form, () => (
              <div
                key={key}
                id={idOf(key)}
                role="row"
                aria-rowindex={item.index + 2}
                aria-selected={selected !== undefined ? selected === key : undefined}
                class={classes("table-row", onOpen && "link", active === key && "active", props.rowClass?.(row))}
                style={{ transform: `translateY(${item.start}px)`, gridTemplateColumns: tracks }}
                onClick={(event) => {
                  if ((event.target as HTMLElement).closest("a, button, input")) return;
                  if (String(getSelection()) !== "") return;
                  setActive(key);
                  onOpen?.(row);
                }}
              >
                {columns.map((column) => (
                  <div key={column.key} role="gridcell" class={classes("cell", column.right && "right")}>
                    {column.render(row, item.index)}
                  </div>
                ))}
              </div>
            ));
          })}
        </div>
      </div>
      {rows.length === 0 && props.empty}
      {props.foot && <div class="table-foot">{props.foot}</div>}
    </div>
  );
}
