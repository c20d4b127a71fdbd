import type { Level } from "../api/types.ts";
import type { Tone } from "./basics.tsx";

export const levels: readonly Level[] = ["debug", "info", "warning", "error"];
export const levelTone: Record<Level, Tone> = { debug: "none", info: "accent", warning: "warn", error: "bad" };
