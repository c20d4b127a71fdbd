// What a completion is asked for with.

import { useParams } from "../../app/router.ts";

export interface Settings {
  readonly temperature: number;
  readonly topP: number;
  readonly maxTokens: number;
  /** null: another one each time. */
  readonly seed: number | null;
  readonly stop: string;
}

export const DEFAULTS: Settings = { temperature: 0.7, topP: 1, maxTokens: 128, seed: 1, stop: "" };

/** How many alternatives of each token are asked for. */
export const ALTERNATIVES = 5;

const NAMES = ["temperature", "top_p", "max_tokens", "seed", "stop"] as const;

export function useSettings(): Settings {
  const params = useParams(NAMES);
  const number = (text: string | undefined, fallback: number) => {
    const value = Number(text);
    return text === undefined || !Number.isFinite(value) ? fallback : value;
  };
  return {
    temperature: number(params["temperature"], DEFAULTS.temperature),
    topP: number(params["top_p"], DEFAULTS.topP),
    maxTokens: number(params["max_tokens"], DEFAULTS.maxTokens),
    seed: params["seed"] === "any" ? null : number(params["seed"], DEFAULTS.seed ?? 1),
    stop: params["stop"] ?? DEFAULTS.stop,
  };
}

/** "END|\n\n" -> ["END", two line breaks]. A backslash makes \n, \t, \| and \\. */
export function parseStops(text: string): string[] {
  const stops: string[] = [];
  let current = "";
  for (let i = 0; i < text.length; ++i) {
    const letter = text.charAt(i);
    if (letter === "\\" && i + 1 < text.length) {
      const next = text.charAt(++i);
      current += next === "n" ? "\n" : next === "t" ? "\t" : next;
    } else if (letter === "|") {
      stops.push(current);
      current = "";
    } else current += letter;
  }
  stops.push(current);
  return stops.filter((stop) => stop !== "").slice(0, 16);
}

export function completionBody(model: string, prompt: string, settings: Settings): Record<string, unknown> {
  const stop = parseStops(settings.stop);
  return {
    model,
    prompt,
    stream: true,
    logprobs: ALTERNATIVES,
    temperature: settings.temperature,
    top_p: settings.topP,
    max_tokens: settings.maxTokens,
    ...(settings.seed === null ? {} : { seed: settings.seed }),
    ...(stop.length ? { stop } : {}),
  };
}
