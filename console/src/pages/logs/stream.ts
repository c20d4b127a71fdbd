// The lines that the log page holds: oldest first, extended at both ends, at most a hundred thousand.

import type { LogPage, LogRecord } from "../../api/types.ts";

export const linesMax = 100_000;
export const pageSize = 1000;

export interface Lines {
  /** Oldest first. */
  logs: LogRecord[];
  /** The cursor of older records; null: there are none. */
  older: string | null;
  /** Where following goes on; null: nothing to follow. */
  newest: string | null;
  /** Older lines were dropped to make room for newer ones. */
  dropped: boolean;
}

export const noLines: Lines = { logs: [], older: null, newest: null, dropped: false };

/** The first page: the server's answers have the newest first. */
export function firstLines(page: LogPage): Lines {
  return { logs: [...page.logs].reverse(), older: page.next, newest: page.newest, dropped: false };
}

export function addOlder(lines: Lines, page: LogPage): Lines {
  const room = linesMax - lines.logs.length;
  const added = page.logs.slice(0, Math.max(0, room)).reverse();
  return { ...lines, logs: [...added, ...lines.logs], older: added.length < page.logs.length ? null : page.next };
}

/** What came since: oldest first already. Beyond the limit the oldest lines go; reaching them again needs a new search. */
export function addNewer(lines: Lines, page: LogPage): Lines {
  const newest = page.newest ?? lines.newest;
  if (page.logs.length === 0) return newest === lines.newest ? lines : { ...lines, newest };
  const logs = [...lines.logs, ...page.logs];
  const excess = logs.length - linesMax;
  if (excess <= 0) return { ...lines, logs, newest };
  return { logs: logs.slice(excess), older: null, newest, dropped: true };
}

/** What tells a line from others in an address: a record has no id of its own. */
export function lineKey(log: LogRecord): string {
  return `${log.time}.${log.event}.${(log.span_id ?? "").slice(0, 6)}`;
}
