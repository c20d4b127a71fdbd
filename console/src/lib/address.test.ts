import { describe, expect, it } from "vitest";
import { findMatches, parseDuration, parseQuery, splitWords } from "./query.ts";
import { matchPath, pageHref, pathOf, toQuery, withParams } from "./url.ts";

describe("addresses", () => {
  it("leaves empty parameters out", () => expect(toQuery({ a: "", b: null, c: 0, d: "x y" })).toBe("?c=0&d=x+y"));
  it("merges changes", () => {
    expect(withParams("?a=1&b=2", { a: null, c: "3" })).toBe("?b=2&c=3");
    expect(withParams("?a=1", { a: "" })).toBe("");
  });
  it("keeps the time range from page to page, and nothing else", () => {
    expect(pageHref("/logs", "?from=-5m&level=error", { text: "x" })).toBe("/console/logs?from=-5m&text=x");
    expect(pageHref("/", "")).toBe("/console/");
  });
  it("finds the page of a path", () => {
    expect(pathOf("/console/")).toBe("/");
    expect(pathOf("/console/traces/")).toBe("/traces");
    expect(matchPath("/traces/:id", "/traces/4bf9")).toEqual({ id: "4bf9" });
    expect(matchPath("/runs/:id", "/runs/a%3Atrain%3A0")).toEqual({ id: "a:train:0" });
    expect(matchPath("/traces", "/traces/4bf9")).toBeNull();
    expect(matchPath("/traces/:id", "/traces")).toBeNull();
    expect(matchPath("/x/*", "/x/a/b")).toEqual({ rest: "a/b" });
    expect(matchPath("/runs/:id", "/runs/%")).toBeNull();
  });
});

describe("the filter language", () => {
  const keys = [
    { key: "user", label: "User" },
    { key: "status", label: "Status", values: ["ok", "error"] },
    { key: "duration", label: "Duration", duration: true },
  ];
  it("splits conditions from free text", () => {
    expect(parseQuery("user:alice slow worker status:error", keys)).toEqual({
      filters: { user: "alice", status: "error" },
      text: "slow worker",
      problems: [],
    });
  });
  it("keeps blanks in quotes", () => {
    expect(splitWords('user:"a b" c')).toEqual(['user:"a b"', "c"]);
    expect(parseQuery('user:"a b" "not found"', keys)).toMatchObject({ filters: { user: "a b" }, text: "not found" });
  });
  it("leaves words alone that are no condition", () => {
    expect(parseQuery("http://x tuft:y", keys).text).toBe("http://x tuft:y");
  });
  it("compares durations", () => {
    expect(parseQuery("duration:>2s", keys).filters).toEqual({ min_duration: "2000000" });
    expect(parseQuery("duration>=350ms duration:<5s", keys).filters).toEqual({
      min_duration: "350000",
      max_duration: "5000000",
    });
    expect(parseDuration("1.5")).toBe(1_500_000);
  });
  it("says what is wrong", () => {
    expect(parseQuery("duration:fast", keys).problems[0]).toMatch(/duration:>2s/);
    expect(parseQuery("status:bad", keys).problems).toEqual(["status is one of ok, error."]);
    expect(parseQuery("user:", keys).problems).toEqual(["user needs a value."]);
  });
  it("finds what to mark in a text", () => {
    expect(findMatches("Error: an error", "error")).toEqual([
      [0, 5],
      [10, 15],
    ]);
    expect(findMatches("abc", " ")).toEqual([]);
  });
});
