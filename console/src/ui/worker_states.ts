import type { WorkerState } from "../api/types.ts";
import type { Tone } from "./basics.tsx";

export const workerTone: Record<WorkerState, Tone> = {
  ready: "ok",
  standby: "none",
  starting: "warn",
  draining: "warn",
  silent: "warn",
  absent: "warn",
  dead: "bad",
};
