// The small parts of every page: values with units, badges, states of nothing and of failure.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { ApiError } from "../api/client.ts";
import { go, href } from "../app/router.ts";
import { serverNow, tick } from "../app/state.ts";
import { formatAbsolute, formatClock, formatRelative } from "../lib/time.ts";
import { formatBytes, formatDuration } from "../lib/units.ts";
import type { Params } from "../lib/url.ts";
import { AlertIcon, CheckIcon, CopyIcon, CrossIcon, DotIcon, EmptyIcon } from "./icons.tsx";

export const classes = (...names: (string | false | null | undefined)[]): string => names.filter(Boolean).join(" ");

interface LinkProps {
  to: string;
  params?: Params;
  class?: string;
  title?: string;
  "aria-current"?: "page";
  "aria-label"?: string;
  children?: ComponentChildren;
}

/** A link to a page of the console, which keeps the time range. */
export function Link({ to, params, children, ...rest }: LinkProps) {
  const target = href(to, params);
  return (
    <a
      {...rest}
      href={target}
      onClick={(event) => {
        if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
        event.preventDefault();
        event.stopPropagation();
        go(target);
      }}
    >
      {children}
    </a>
  );
}

/** A point in time: relative, absolute with its zone on hover. `clock`: the time of day instead. */
export function Time({ at, clock = false }: { at: number | null | undefined; clock?: boolean }) {
  if (at === null || at === undefined) return <span class="muted">–</span>;
  if (!clock) void tick.value;
  return (
    <time class="nowrap" dateTime={new Date(at / 1000).toISOString()} title={formatAbsolute(at)}>
      {clock ? formatClock(at) : formatRelative(at, serverNow())}
    </time>
  );
}

export function Duration({ micros }: { micros: number | null | undefined }) {
  return (
    <span class="nowrap" title={micros === null || micros === undefined ? undefined : `${Math.round(micros)} µs`}>
      {formatDuration(micros)}
    </span>
  );
}

export function Bytes({ value }: { value: number | null | undefined }) {
  return (
    <span
      class="nowrap"
      title={value === null || value === undefined ? undefined : `${value.toLocaleString("en-US")} bytes`}
    >
      {formatBytes(value)}
    </span>
  );
}

export type Tone = "ok" | "warn" | "bad" | "accent" | "none";

/** A word about a state. Its shape says the tone, too, for those who do not see the colour. */
export function Badge({
  tone = "none",
  children,
  title,
}: {
  tone?: Tone;
  children: ComponentChildren;
  title?: string;
}) {
  return (
    <span class={classes("badge", tone !== "none" && tone)} title={title}>
      {tone === "ok" && <CheckIcon />}
      {tone === "warn" && <AlertIcon />}
      {tone === "bad" && <CrossIcon />}
      {tone === "accent" && <DotIcon />}
      {children}
    </span>
  );
}

/** An id that a click copies. `short`: how many characters are shown. */
export function Copy({ text, short = 0, label }: { text: string; short?: number; label?: string }) {
  const [copied, setCopied] = useState(false);
  const shown = short && text.length > short ? `${text.slice(0, short)}…` : text;
  const copy = async (event: MouseEvent) => {
    event.stopPropagation();
    if (!(await writeClipboard(text))) return;
    setCopied(true);
    setTimeout(() => setCopied(false), 1200);
  };
  return (
    <button
      type="button"
      class="copy"
      onClick={copy}
      title={`Copy ${text}`}
      aria-label={`Copy ${label ?? "id"} ${shown}`}
    >
      <span>{shown}</span>
      {copied ? <CheckIcon /> : <CopyIcon />}
    </button>
  );
}

/** The clipboard's own interface exists on https and localhost only; elsewhere the old command does. */
export async function writeClipboard(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "visually-hidden";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/** Nothing to show: what it means, and what to do next. */
export function Empty({
  title,
  children,
  icon,
}: {
  title: string;
  children?: ComponentChildren;
  icon?: ComponentChildren;
}) {
  return (
    <div class="empty">
      {icon ?? <EmptyIcon />}
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}

/** What happened, in the server's words, and the way to try again. */
export function ErrorBox({ error, retry }: { error: ApiError | Error | string; retry?: () => void }) {
  const message = typeof error === "string" ? error : error.message;
  return (
    <div class="error" role="alert">
      <AlertIcon />
      <p>{message}</p>
      {retry && (
        <button type="button" class="btn small" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}

/** For the head of a card: what it shows is old, because the newest try failed. */
export function Stale({ error }: { error: ApiError | undefined }) {
  if (!error) return null;
  return (
    <Badge tone="warn" title={error.message}>
      last known values
    </Badge>
  );
}

export function Skeleton({ height }: { height: number }) {
  return <div class="skeleton" style={{ height: `${height}px` }} aria-hidden="true" />;
}

interface CardProps {
  title?: ComponentChildren;
  actions?: ComponentChildren;
  flush?: boolean;
  children: ComponentChildren;
  class?: string;
  label?: string;
}

export function Card({ title, actions, flush, children, class: extra, label }: CardProps) {
  return (
    <section class={classes("card", extra)} aria-label={label ?? (typeof title === "string" ? title : undefined)}>
      {(title || actions) && (
        <div class="card-head">
          <h2>{title}</h2>
          {actions}
        </div>
      )}
      <div class={classes("card-body", flush && "flush")}>{children}</div>
    </section>
  );
}

interface StatProps {
  label: ComponentChildren;
  value: ComponentChildren;
  unit?: string;
  note?: ComponentChildren;
  tone?: "bad" | "warn" | "none";
  /** The page that explains the number. */
  to?: string;
  params?: Params;
  /** Recent values, drawn as a small line. */
  points?: (number | null)[];
}

export function Stat({ label, value, unit, note, tone = "none", to, params, points }: StatProps) {
  const body = (
    <>
      <span class="stat-label">{label}</span>
      <span class="stat-value">
        {value}
        {unit && <small>{unit}</small>}
      </span>
      <span class="stat-note">{note}</span>
      {points && <Spark points={points} />}
    </>
  );
  const name = classes("card stat", tone !== "none" && tone);
  return to ? (
    <Link to={to} params={params} class={name}>
      {body}
    </Link>
  ) : (
    <div class={name}>{body}</div>
  );
}

/** A line without axes. Gaps stay gaps. */
export function Spark({ points }: { points: (number | null)[] }) {
  const known = points.filter((value): value is number => value !== null);
  if (known.length < 2) return <div class="spark" />;
  const top = Math.max(...known, 1e-12);
  const x = (index: number) => (index / (points.length - 1)) * 100;
  const y = (value: number) => 31 - (value / top) * 28;
  let path = "";
  let area = "";
  let start = -1;
  points.forEach((value, i) => {
    if (value === null) {
      if (start >= 0) area += `L${x(i - 1)} 33Z`;
      start = -1;
      return;
    }
    path += `${start < 0 ? "M" : "L"}${x(i).toFixed(2)} ${y(value).toFixed(2)}`;
    area +=
      start < 0
        ? `M${x(i).toFixed(2)} 33L${x(i).toFixed(2)} ${y(value).toFixed(2)}`
        : `L${x(i).toFixed(2)} ${y(value).toFixed(2)}`;
    if (start < 0) start = i;
  });
  if (start >= 0) area += `L${x(points.length - 1)} 33Z`;
  return (
    <svg class="spark" viewBox="0 0 100 34" preserveAspectRatio="none" aria-hidden="true">
      <path d={area} fill="currentColor" opacity="0.12" />
      <path
        d={path}
        fill="none"
        stroke="currentColor"
        stroke-width="1.5"
        vector-effect="non-scaling-stroke"
        stroke-linejoin="round"
      />
    </svg>
  );
}

/** A row of choices of which one holds. */
export function Segments<T extends string>(props: {
  label: string;
  value: T;
  options: readonly (readonly [T, string])[];
  onChange: (value: T) => void;
}) {
  return (
    <div class="segments" role="group" aria-label={props.label}>
      {props.options.map(([value, text]) => (
        <button type="button" key={value} aria-pressed={value === props.value} onClick={() => props.onChange(value)}>
          {text}
        </button>
      ))}
    </div>
  );
}

/** Pairs of names and values; those without a value are left out. */
export function Facts({ items }: { items: [string, ComponentChildren][] }) {
  return (
    <dl class="dl">
      {items
        .filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false)
        .map(([name, value]) => (
          <>
            <dt key={name}>{name}</dt>
            <dd>{value}</dd>
          </>
        ))}
    </dl>
  );
}
