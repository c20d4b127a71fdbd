// The colours of series, for canvases that cannot read style sheets.

import { dark } from "../app/state.ts";

const seriesCount = 8;

/** A colour of the style sheet, such as "--text-3", as it is now. */
export function cssColor(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** The colour of the series at an index. After eight they repeat; charts then draw them dashed. */
export const seriesVar = (index: number): string => `--s${(index % seriesCount) + 1}`;
export const seriesColor = (index: number): string => cssColor(seriesVar(index));
export const seriesDash = (index: number): number[] | undefined =>
  [undefined, [6, 3], [2, 3]][Math.floor(index / seriesCount) % 3];

/** A number that is the same for the same text: things keep their colour from page to page. */
export function colorIndex(text: string): number {
  let hash = 2166136261;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 16777619);
  return (hash >>> 0) % seriesCount;
}

/** Subscribes a component to changes of the look; the value itself means nothing. */
export const useTheme = (): boolean => dark.value;

/** The colour between two of the form #rrggbb: `share` of the first. */
export function mixColors(first: string, second: string, share: number): string {
  const part = (color: string, at: number) => Number.parseInt(color.slice(at, at + 2), 16);
  const mixed = [1, 3, 5].map((at) => Math.round(part(first, at) * share + part(second, at) * (1 - share)));
  return `#${mixed.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
}
