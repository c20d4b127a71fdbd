// A completion that is streamed: server-sent events, and the tokens in them.

export interface Alternative {
  readonly text: string;
  readonly logprob: number;
}

export interface Token {
  readonly text: string;
  /** The model's own, at temperature 1. null: the server sent none. */
  readonly logprob: number | null;
  /** The likeliest tokens at this place, likeliest first. */
  readonly alternatives: readonly Alternative[];
}

/** Splits a stream of text into the data of its events. Call `push` with each piece that arrives. */
export class EventReader {
  private rest = "";

  push(piece: string): string[] {
    // A line may end in \n, \r or \r\n, and the pieces of a stream end anywhere.
    const text = this.rest + piece;
    const events: string[] = [];
    let begin = 0;
    for (;;) {
      const end = /\r?\n\r?\n|\r\r/.exec(text.slice(begin));
      if (!end) break;
      const data = dataOf(text.slice(begin, begin + end.index));
      if (data !== null) events.push(data);
      begin += end.index + end[0].length;
    }
    this.rest = text.slice(begin);
    return events;
  }
}

function dataOf(event: string): string | null {
  const lines = event
    .split(/\r?\n|\r/)
    .filter((line) => line.startsWith("data:"))
    .map((line) => line.slice(line.startsWith("data: ") ? 6 : 5));
  return lines.length ? lines.join("\n") : null;
}

export interface Piece {
  readonly tokens: readonly Token[];
  readonly finish: string | null;
  readonly error: string | null;
  readonly done: boolean;
}

const NOTHING: Piece = { tokens: [], finish: null, error: null, done: false };

interface Chunk {
  error?: { message?: string };
  choices?: {
    text?: string;
    finish_reason?: string | null;
    logprobs?: {
      tokens?: string[];
      token_logprobs?: (number | null)[];
      top_logprobs?: (Record<string, number> | null)[] | null;
    } | null;
  }[];
}

/** What an event adds to the answer. An event that cannot be read is an error, not nothing. */
export function readChunk(data: string): Piece {
  if (data.trim() === "[DONE]") return { ...NOTHING, done: true };
  let chunk: Chunk;
  try {
    chunk = JSON.parse(data) as Chunk;
  } catch {
    return { ...NOTHING, error: "The server sent something that cannot be read." };
  }
  if (chunk.error) return { ...NOTHING, error: chunk.error.message ?? "The server ended the answer with an error." };
  const choice = chunk.choices?.[0];
  if (!choice) return NOTHING;
  const finish = choice.finish_reason ?? null;
  const logprobs = choice.logprobs;
  if (!logprobs?.tokens?.length) {
    const tokens = choice.text ? [{ text: choice.text, logprob: null, alternatives: [] }] : [];
    return { ...NOTHING, tokens, finish };
  }
  const tokens = logprobs.tokens.map((text, i) => ({
    text,
    logprob: logprobs.token_logprobs?.[i] ?? null,
    alternatives: sortAlternatives(logprobs.top_logprobs?.[i]),
  }));
  return { ...NOTHING, tokens, finish };
}

function sortAlternatives(top: Record<string, number> | null | undefined): Alternative[] {
  return Object.entries(top ?? {})
    .map(([text, logprob]) => ({ text, logprob }))
    .sort((a, b) => b.logprob - a.logprob);
}

/** e to the negative mean log-probability: 1 if the model was sure of each token. null without log-probabilities. */
export function perplexity(tokens: readonly Token[]): number | null {
  const known = tokens.flatMap((token) => (token.logprob === null ? [] : [token.logprob]));
  if (known.length === 0) return null;
  return Math.exp(-known.reduce((sum, value) => sum + value, 0) / known.length);
}

/** The first place at which two answers differ; null if the shorter one is the beginning of the other. */
export function firstDifference(a: readonly Token[], b: readonly Token[]): number | null {
  const count = Math.min(a.length, b.length);
  for (let i = 0; i < count; ++i) {
    if (a[i]?.text !== b[i]?.text) return i;
  }
  return null;
}

/** 0 for a token that the model was sure of, to 6 for one that it found very unlikely; for its colour. */
export function surpriseLevel(logprob: number | null): number {
  if (logprob === null) return 0;
  const probability = Math.exp(logprob);
  const steps = [0.8, 0.5, 0.25, 0.1, 0.03, 0.01];
  const level = steps.findIndex((step) => probability >= step);
  return level < 0 ? steps.length : level;
}

/** A token as a reader can see it: line breaks and blanks have signs. */
export function visibleToken(text: string): string {
  if (text === "") return "∅";
  if (isBytes(text)) return text.slice("bytes:".length);
  return text.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replace(/^ | $/g, "␣");
}

const BYTES = /^bytes:((?:\\x[0-9a-f]{2})+)$/i;

/** The bytes of a token: the server writes one that is no text by itself as `bytes:\xe2\x82`. */
function bytesOf(token: string): Uint8Array {
  const match = BYTES.exec(token);
  if (!match) return new TextEncoder().encode(token);
  return Uint8Array.from((match[1] as string).split("\\x").slice(1), (hex) => Number.parseInt(hex, 16));
}

/**
 * What each token adds to the text. A letter whose bytes are spread over several tokens stands at the last of them, and
 * the others add nothing; bytes that are no text are a replacement character.
 */
export function textsOf(tokens: readonly Token[]): string[] {
  const decoder = new TextDecoder();
  return tokens.map((token) => decoder.decode(bytesOf(token.text), { stream: true }));
}

/** Whether a token is a part of a letter, or no text at all. */
export function isBytes(token: string): boolean {
  return BYTES.test(token);
}
