// The steps of runs, kept while new ones arrive.

import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, getJson, observe } from "../../api/client.ts";
import type { RunStep, RunSteps } from "../../api/types.ts";
import { live } from "../../app/state.ts";
import { appendSteps } from "./curves.ts";

/** How many steps are asked for at once; the server thins out longer runs. */
const POINTS = 1000;

export interface StepsOf {
  readonly steps: ReadonlyMap<string, readonly RunStep[]>;
  readonly error: ApiError | null;
  readonly loading: boolean;
}

/** Follows the runs with these ids: all steps at first, then the newer ones, every `every` milliseconds. */
export function useSteps(runs: readonly string[], every = 3000, points = POINTS): StepsOf {
  const [steps, setSteps] = useState<ReadonlyMap<string, readonly RunStep[]>>(new Map());
  const [error, setError] = useState<ApiError | null>(null);
  const known = useRef(new Map<string, readonly RunStep[]>());
  const isLive = live.value;
  const list = runs.join(",");

  useEffect(() => {
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const ids = list ? list.split(",") : [];

    const askOne = async (run: string) => {
      const before = known.current.get(run) ?? [];
      const path = observe(`/runs/${encodeURIComponent(run)}/steps`, { after: before.at(-1)?.step ?? 0, points });
      const answer = await getJson<RunSteps>(path, abort.signal);
      if (!answer.steps.length && known.current.has(run)) return false;
      known.current.set(run, appendSteps(before, answer.steps));
      return true;
    };
    const ask = async () => {
      const results = await Promise.allSettled(ids.map(askOne));
      if (abort.signal.aborted) return;
      const failure = results.find((result) => result.status === "rejected");
      setError(failure?.reason instanceof ApiError ? failure.reason : null);
      if (results.some((result) => result.status === "fulfilled" && result.value)) setSteps(new Map(known.current));
      if (isLive && every > 0) timer = setTimeout(askIfSeen, every);
    };
    const askIfSeen = () => {
      if (document.hidden) timer = setTimeout(askIfSeen, every);
      else void ask();
    };
    void ask();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [list, isLive, every, points]);

  return { steps, error, loading: runs.some((run) => !steps.has(run)) && error === null };
}
