// Loads the lines of the log: a first page, older ones on demand, newer ones each second while the page is live.

import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, getJson, observe } from "../../api/client.ts";
import type { LogPage } from "../../api/types.ts";
import { live } from "../../app/state.ts";
import type { Params } from "../../lib/url.ts";
import { addNewer, addOlder, firstLines, type Lines, noLines, pageSize } from "./stream.ts";

const followMillis = 1000;

export interface LoadedLines {
  lines: Lines;
  error: ApiError | null;
  loading: boolean;
  loadingOlder: boolean;
  loadOlder: () => void;
  reload: () => void;
}

const asError = (error: unknown) =>
  error instanceof ApiError ? error : new ApiError(0, `The answer could not be read: ${error}`);

export function useLines(filters: Params, range: { from: string; until: string }): LoadedLines {
  const key = JSON.stringify([filters, range]);
  const [lines, setLines] = useState<Lines>(noLines);
  const [error, setError] = useState<ApiError | null>(null);
  const [loading, setLoading] = useState(true);
  const [loadingOlder, setLoadingOlder] = useState(false);
  const [turn, setTurn] = useState(0);
  const current = useRef(lines);
  current.current = lines;
  const abort = useRef<AbortController | null>(null);

  useEffect(() => {
    const controller = new AbortController();
    abort.current = controller;
    setLoading(true);
    setError(null);
    setLoadingOlder(false);
    getJson<LogPage>(observe("/logs", { ...filters, ...range, limit: pageSize }), controller.signal)
      .then((page) => setLines(firstLines(page)))
      .catch((failure) => {
        if (controller.signal.aborted) return;
        setLines(noLines);
        setError(asError(failure));
      })
      .finally(() => !controller.signal.aborted && setLoading(false));
    return () => controller.abort();
  }, [key, turn]);

  const isLive = live.value && !loading && range.until === "";
  useEffect(() => {
    if (!isLive) return;
    const controller = new AbortController();
    let timer: ReturnType<typeof setTimeout>;
    const follow = async () => {
      const after = current.current.newest;
      if (!document.hidden) {
        try {
          // Where there was nothing yet, there is nothing to go on from: the first page is asked for again.
          const path = observe(
            "/logs",
            after
              ? { ...filters, from: range.from, after, limit: pageSize }
              : { ...filters, ...range, limit: pageSize },
          );
          const page = await getJson<LogPage>(path, controller.signal);
          setError(null);
          if (!after) setLines(firstLines(page));
          else setLines((before) => (before.newest === after ? addNewer(before, page) : before));
          // More is waiting: do not fall behind.
          if (after && page.logs.length === pageSize) {
            timer = setTimeout(follow, 0);
            return;
          }
        } catch (failure) {
          if (controller.signal.aborted) return;
          setError(asError(failure));
        }
      }
      if (!controller.signal.aborted) timer = setTimeout(follow, followMillis);
    };
    timer = setTimeout(follow, followMillis);
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, [isLive, key, turn]);

  const loadOlder = () => {
    const cursor = current.current.older;
    const signal = abort.current?.signal;
    if (loadingOlder || !cursor || !signal) return;
    setLoadingOlder(true);
    getJson<LogPage>(observe("/logs", { ...filters, ...range, cursor, limit: pageSize }), signal)
      .then((page) => setLines((before) => (before.older === cursor ? addOlder(before, page) : before)))
      .catch((failure) => !signal.aborted && setError(asError(failure)))
      .finally(() => !signal.aborted && setLoadingOlder(false));
  };
  return { lines, error, loading, loadingOlder, loadOlder, reload: () => setTurn((value) => value + 1) };
}
