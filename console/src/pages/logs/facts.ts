// What a line says beside its text: its attributes, in a few characters each.

import type { Attributes } from "../../api/types.ts";

/** A line's row shows no more; its detail has all. */
const factsMax = 8;
const valueMax = 24;
const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/;

/** The event has a column of its own, and where in the program the line was written tells a reader nothing. */
const isNoise = (key: string): boolean => key === "event.name" || key.startsWith("code.");

/** "steps=3 run=1f0c9a52…:train:0": names without their area, ids by their beginning. */
export function facts(attributes: Attributes): string {
  const shown = [];
  for (const [key, value] of Object.entries(attributes)) {
    if (isNoise(key)) continue;
    if (shown.length === factsMax) break;
    shown.push(`${key.replace(/^tuft\./, "").replace(/_id$/, "")}=${short(String(value))}`);
  }
  return shown.join("  ");
}

function short(value: string): string {
  const plain = value.replace(uuid, (id) => `${id.slice(0, 8)}…`);
  return plain.length > valueMax ? `${plain.slice(0, valueMax - 1)}…` : plain;
}
