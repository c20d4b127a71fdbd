import type { WorkerState } from "../api/types.ts";
import type { Tone } from "./basics.tsx";

/** Whether a worker of this name serves the base model: of several, each has its number ("m#2"). */
export const serves = (worker: string, baseModel: string) =>
  worker === baseModel || (worker.startsWith(`${baseModel}#`) && /^\d+$/.test(worker.slice(baseModel.length + 1)));

export const workerTone: Record<WorkerState, Tone> = {
  ready: "ok",
  standby: "none",
  starting: "warn",
  draining: "warn",
  silent: "warn",
  absent: "warn",
  dead: "bad",
};
