import { describe, expect, it } from "vitest";
import type { LogRecord } from "../../api/types.ts";
import { addNewer, addOlder, firstLines, linesMax } from "./stream.ts";

const log = (time: number): LogRecord => ({
  time,
  level: "info",
  event: "e",
  body: "",
  service: "",
  worker: "",
  scope: "",
  user: null,
  trace_id: null,
  span_id: null,
  attributes: {},
});
const times = (lines: { logs: LogRecord[] }) => lines.logs.map((one) => one.time);

describe("the lines of the log", () => {
  const first = firstLines({ logs: [log(5), log(4)], next: "old", newest: "5" });
  it("stand in the order of time", () => expect(times(first)).toEqual([4, 5]));
  it("grow at both ends", () => {
    const older = addOlder(first, { logs: [log(3), log(2)], next: null, newest: "9" });
    expect(times(older)).toEqual([2, 3, 4, 5]);
    expect(older.older).toBeNull();
    expect(older.newest).toBe("5");
    const newer = addNewer(older, { logs: [log(6), log(7)], next: null, newest: "7" });
    expect(times(newer)).toEqual([2, 3, 4, 5, 6, 7]);
    expect(newer.newest).toBe("7");
  });
  it("stay the same object when nothing came", () =>
    expect(addNewer(first, { logs: [], next: null, newest: "5" })).toBe(first));
  it("drop the oldest beyond the limit, and say so", () => {
    const full = { ...first, logs: Array.from({ length: linesMax }, (_, i) => log(i)) };
    const more = addNewer(full, { logs: [log(linesMax), log(linesMax + 1)], next: null, newest: "x" });
    expect(more.logs.length).toBe(linesMax);
    expect(more.logs[0]!.time).toBe(2);
    expect(more.dropped).toBe(true);
    expect(more.older).toBeNull();
  });
  it("load no more older lines than fit", () => {
    const full = { ...first, logs: Array.from({ length: linesMax - 1 }, (_, i) => log(i + 10)) };
    const more = addOlder(full, { logs: [log(9), log(8)], next: "older", newest: null });
    expect(times(more).slice(0, 2)).toEqual([9, 10]);
    expect(more.older).toBeNull();
  });
});
