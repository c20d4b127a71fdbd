// Data of the server in a component: fetched, kept while it is refreshed, polled while the page is live.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { live } from "../app/state.ts";
import { ApiError, getJson } from "./client.ts";
import { asksAgain } from "./refusal.ts";

export interface Answer<T> {
  /** The newest answer; that of the previous path until the first answer of a new one, unless `keep` is false. */
  data: T | undefined;
  /** Why the newest try failed. `data` is then the last that came. */
  error: ApiError | undefined;
  /** No answer to this path yet. */
  loading: boolean;
  reload: () => void;
}

interface Options {
  /** Milliseconds between the end of a request and the next, while live and the tab is visible. 0: once. */
  every?: number;
  /** Whether the answer of the previous path stays until there is a new one (default: true). */
  keep?: boolean;
}

/** Fetches `path`, again whenever it changes. null: nothing. */
export function useApi<T>(path: string | null, options: Options = {}): Answer<T> {
  return useAsked<T>(path, (signal) => getJson<T>(path!, signal), options);
}

/** Fetches several paths at once; the answer comes when all are there. */
export function useApis<T>(paths: string[] | null, options: Options = {}): Answer<T[]> {
  const fetchAll = (signal: AbortSignal) => Promise.all(paths!.map((path) => getJson<T>(path, signal)));
  return useAsked<T[]>(paths === null ? null : paths.join("\n"), fetchAll, options);
}

/** The same for anything that is asked for; `key` says what it is, and asks anew when it changes. */
export function useAsked<T>(
  key: string | null,
  ask: (signal: AbortSignal) => Promise<T>,
  { every = 0, keep = true }: Options = {},
): Answer<T> {
  const [state, setState] = useState<{ key: string | null; data?: T; error?: ApiError }>({ key: null });
  const [turn, setTurn] = useState(0);
  const isLive = live.value;
  const reload = useCallback(() => setTurn((value) => value + 1), []);
  const tried = useRef<string | null>(null);
  const answered = useRef<string | null>(null);
  const latest = useRef(ask);
  latest.current = ask;

  useEffect(() => {
    if (key === null) {
      tried.current = null;
      answered.current = null;
      setState({ key: null });
      return;
    }
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let failures = 0;
    let asking = false;

    const once = async () => {
      timer = undefined;
      asking = true;
      try {
        const data = await latest.current(abort.signal);
        if (abort.signal.aborted) return;
        failures = 0;
        tried.current = key;
        answered.current = key;
        setState({ key, data });
      } catch (error) {
        if (abort.signal.aborted) return;
        failures++;
        tried.current = key;
        const known = error instanceof ApiError ? error : new ApiError(0, `The answer could not be read: ${error}`);
        setState((before) => ({ key, data: before.key === key || keep ? before.data : undefined, error: known }));
        if (!asksAgain(known.status, answered.current === key)) return;
      } finally {
        asking = false;
      }
      wait();
    };
    // A failing server is asked less and less often.
    const wait = () => {
      if (!every || !live.peek() || document.hidden || abort.signal.aborted) return;
      timer = setTimeout(once, Math.min(every * 2 ** Math.min(failures, 4), 30_000));
    };
    const visible = () => {
      if (!document.hidden && timer === undefined && !asking && every && live.peek()) void once();
    };

    // Coming back to live asks at once; going to paused does not.
    if (tried.current !== key || isLive || turn) void once();
    document.addEventListener("visibilitychange", visible);
    return () => {
      abort.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", visible);
    };
  }, [key, every, isLive, turn, keep]);

  const current = state.key === key || keep;
  return {
    data: key !== null && current ? state.data : undefined,
    error: state.key === key ? state.error : undefined,
    loading: key !== null && (state.key !== key || (state.data === undefined && state.error === undefined)),
    reload,
  };
}
