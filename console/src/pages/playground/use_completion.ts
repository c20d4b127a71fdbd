// One streamed answer, from the request to its end.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { ApiError, request } from "../../api/client.ts";
import { EventReader, readChunk, type Token } from "./stream.ts";

export interface Completion {
  readonly state: "none" | "waiting" | "streaming" | "done" | "stopped" | "failed";
  readonly tokens: readonly Token[];
  readonly finish: string | null;
  readonly error: string | null;
  /** Milliseconds to the first token and to the newest. */
  readonly firstAfter: number | null;
  readonly took: number;
}

const NONE: Completion = { state: "none", tokens: [], finish: null, error: null, firstAfter: null, took: 0 };

export function useCompletion() {
  const [completion, setCompletion] = useState<Completion>(NONE);
  const abort = useRef<AbortController | null>(null);
  const stop = useCallback(() => abort.current?.abort(), []);
  useEffect(() => stop, [stop]);

  const start = useCallback(async (body: Record<string, unknown>) => {
    abort.current?.abort();
    const mine = new AbortController();
    abort.current = mine;
    const began = performance.now();
    let now: Completion = { ...NONE, state: "waiting" };
    let frame = 0;
    // Tokens may come faster than the screen can show them.
    const show = () => {
      if (frame || abort.current !== mine) return;
      frame = requestAnimationFrame(() => {
        frame = 0;
        if (abort.current === mine) setCompletion(now);
      });
    };
    const add = (data: string) => {
      const piece = readChunk(data);
      const took = performance.now() - began;
      now = {
        state: piece.error ? "failed" : "streaming",
        tokens: piece.tokens.length ? [...now.tokens, ...piece.tokens] : now.tokens,
        finish: piece.finish ?? now.finish,
        error: piece.error ?? now.error,
        firstAfter: now.firstAfter ?? (piece.tokens.length ? took : null),
        took: piece.tokens.length ? took : now.took,
      };
      show();
    };
    show();
    try {
      const response = await request("/oai/api/v1/completions", {
        method: "POST",
        body: JSON.stringify(body),
        headers: { "Content-Type": "application/json" },
        signal: mine.signal,
      });
      await readEvents(response, add);
      if (now.state !== "failed") now = { ...now, state: "done" };
    } catch (error) {
      now = mine.signal.aborted ? { ...now, state: "stopped" } : { ...now, state: "failed", error: wordsOf(error) };
    }
    show();
  }, []);

  return { completion, start, stop };
}

async function readEvents(response: Response, add: (data: string) => void): Promise<void> {
  const body = response.body;
  if (!body) throw new ApiError(0, "The server sent no answer.");
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  const events = new EventReader();
  let ended = false;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    for (const data of events.push(value)) {
      if (data.trim() === "[DONE]") ended = true;
      add(data);
    }
  }
  if (!ended) throw new ApiError(0, "The connection ended before the answer did. The worker may have stopped.");
}

/** What went wrong, and what to do about it where that is not in the server's own words. */
function wordsOf(error: unknown): string {
  if (!(error instanceof ApiError)) return "The connection ended before the answer did.";
  switch (error.status) {
    case 404:
      return `${error.message}. Choose a base model, or the path of a checkpoint that is yours or published.`;
    case 429:
      return `${error.message} Wait for other requests to end, then try again.`;
    default:
      return error.message;
  }
}
