// The steps of runs, kept while new ones arrive.

import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, getJson, observe } from "../../api/client.ts";
import type { RunStep, RunSteps } from "../../api/types.ts";
import { live } from "../../app/state.ts";
import { appendSteps, goesOn } from "./curves.ts";

/** How many steps are asked for at once; the server thins out longer runs. */
const POINTS = 1000;

export interface StepsOf {
  readonly steps: ReadonlyMap<string, readonly RunStep[]>;
  readonly error: ApiError | null;
  readonly loading: boolean;
}

/**
 * Follows the runs with these ids: all steps at first, then the newer ones, every `every` milliseconds. Once a run went
 * back to a checkpoint, all are asked for again.
 */
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

    const stepsAfter = async (run: string, after: number) => {
      const path = observe(`/runs/${encodeURIComponent(run)}/steps`, { after, points });
      return (await getJson<RunSteps>(path, abort.signal)).steps;
    };
    const askOne = async (run: string) => {
      const before = known.current.get(run) ?? [];
      const last = before.at(-1)?.step ?? 0;
      // The newest known step is asked for again, to see whether it is still the same.
      const again = await stepsAfter(run, Math.max(0, last - 1));
      const isSame = goesOn(before, again);
      if (isSame && known.current.has(run) && (again.at(-1)?.step ?? 0) <= last) return false;
      known.current.set(run, isSame ? appendSteps(before, again) : await stepsAfter(run, 0));
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
