// What runs and checkpoints are called on the screen.

/** The beginning of a session's id and the number of the run in it: "89263ddb:train:0" from the whole id. */
export function shortRun(id: string): string {
  const match = /^([0-9a-f]{8})[0-9a-f-]{28}(.*)$/i.exec(id);
  return match ? `${match[1]}${match[2]}` : id.length > 24 ? `${id.slice(0, 22)}…` : id;
}

/** The path of a checkpoint among the routes that act on it. A colon may stand in a path as it is. */
export function checkpointPath(run: string, checkpoint: string): string {
  const encode = (text: string) => encodeURIComponent(text).replaceAll("%3A", ":");
  return `/api/v1/training_runs/${encode(run)}/checkpoints/${checkpoint.split("/").map(encode).join("/")}`;
}
