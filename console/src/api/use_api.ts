// Data of the server in a component: fetched, kept while it is refreshed, polled while the page is live.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { live } from "../app/state.ts";
import { ApiError, getJson } from "./client.ts";

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
export function useApi<T>(path: string | null, { every = 0, keep = true }: Options = {}): Answer<T> {
  const [state, setState] = useState<{ path: string | null; data?: T; error?: ApiError }>({ path: null });
  const [turn, setTurn] = useState(0);
  const isLive = live.value;
  const reload = useCallback(() => setTurn((value) => value + 1), []);
  const answered = useRef<string | null>(null);

  useEffect(() => {
    if (path === null) {
      answered.current = null;
      setState({ path: null });
      return;
    }
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let failures = 0;

    const ask = async () => {
      timer = undefined;
      try {
        const data = await getJson<T>(path, abort.signal);
        if (abort.signal.aborted) return;
        failures = 0;
        answered.current = path;
        setState({ path, data });
      } catch (error) {
        if (abort.signal.aborted) return;
        failures++;
        answered.current = path;
        const known = error instanceof ApiError ? error : new ApiError(0, `The answer could not be read: ${error}`);
        setState((before) => ({ path, data: before.path === path || keep ? before.data : undefined, error: known }));
        if (known.status >= 400 && known.status < 500 && known.status !== 429) return;
      }
      wait();
    };
    // A failing server is asked less and less often.
    const wait = () => {
      if (!every || !live.peek() || document.hidden || abort.signal.aborted) return;
      timer = setTimeout(ask, Math.min(every * 2 ** Math.min(failures, 4), 30_000));
    };
    const visible = () => {
      if (!document.hidden && timer === undefined && every && live.peek()) void ask();
    };

    // Coming back to live asks at once; going to paused does not.
    if (answered.current !== path || isLive || turn) void ask();
    document.addEventListener("visibilitychange", visible);
    return () => {
      abort.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", visible);
    };
  }, [path, every, isLive, turn, keep]);

  const current = state.path === path || keep;
  return {
    data: path !== null && current ? state.data : undefined,
    error: state.path === path ? state.error : undefined,
    loading: path !== null && (state.path !== path || (state.data === undefined && state.error === undefined)),
    reload,
  };
}
