// Calls the server. Every call carries the session's cookie and the header that a foreign page cannot set.

import { signal } from "@preact/signals";
import { type Params, toQuery } from "../lib/url.ts";
import type { WhoAmI } from "./types.ts";

/** What went wrong, in the server's words where it has some. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/** Who is logged in. undefined: not known yet; null: nobody. */
export const who = signal<WhoAmI | null | undefined>(undefined);

/** Why the session that was here has ended, in the server's words; empty: nothing to say. */
export const endedBecause = signal("");

/** The server's clock minus this browser's, in microseconds: ages are told by the server's clock. */
export const clockOffset = signal(0);

const headers = { "X-Tuft-Console": "1" };

async function detailOf(response: Response): Promise<string> {
  try {
    const body = await response.json();
    if (typeof body?.detail === "string") return body.detail;
    if (body?.detail !== undefined) return JSON.stringify(body.detail);
    if (typeof body?.error?.message === "string") return body.error.message;
  } catch {
    // No JSON: the status says all there is.
  }
  return `The server answered ${response.status} ${response.statusText}`.trim();
}

/** Makes a request and returns the response if it is a success. A refusal of the session leads to the login page. */
export async function request(path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, {
      credentials: "same-origin",
      ...init,
      headers: { ...headers, ...(init.headers as Record<string, string> | undefined) },
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "The server cannot be reached. It may be restarting, or the network is down.");
  }
  if (response.ok) return response;
  const error = new ApiError(response.status, await detailOf(response));
  if (response.status === 401 && !path.endsWith("/login")) endSession(error.message);
  throw error;
}

/** Leads to the login page, which says why; after a logout nobody asks why. */
function endSession(why: string) {
  if (who.value === null) return;
  endedBecause.value = why;
  who.value = null;
}

export async function getJson<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await request(path, { signal: signal ?? null })).json() as Promise<T>;
}

export async function sendJson(method: string, path: string, body?: unknown): Promise<Response> {
  return request(path, {
    method,
    ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } }),
  });
}

// The cookie of the session cannot be read here. This note says that there may be one, so that somebody who has never
// logged in is shown the login page at once, and no refused request is counted against their address.
const sessionNote = "tuft.session";

function note(mayBe: boolean) {
  try {
    localStorage.setItem(sessionNote, mayBe ? "1" : "0");
  } catch {
    // Without storage the server is asked each time.
  }
}

function mayHaveSession(): boolean {
  try {
    return localStorage.getItem(sessionNote) === "1";
  } catch {
    return true;
  }
}

function welcome(answer: WhoAmI): WhoAmI {
  note(true);
  clockOffset.value = answer.server_time - Date.now() * 1000;
  endedBecause.value = "";
  who.value = answer;
  return answer;
}

export async function login(key: string): Promise<WhoAmI> {
  const response = await sendJson("POST", "/console/login", { key });
  return welcome((await response.json()) as WhoAmI);
}

export async function logout(): Promise<void> {
  try {
    await sendJson("POST", "/console/logout");
  } finally {
    note(false);
    who.value = null;
  }
}

/** Asks who is logged in; throws if the server cannot be asked. */
export async function askWho(): Promise<WhoAmI | null> {
  if (!mayHaveSession()) {
    who.value = null;
    return null;
  }
  try {
    return welcome(await getJson<WhoAmI>(observe("/whoami")));
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) {
      note(false);
      return null;
    }
    throw error;
  }
}

/** The path of a query: observe("/traces", { user: "alice" }). Empty parameters are left out. */
export function observe(path: string, params: Params = {}): string {
  return `/api/v1/observe${path}${toQuery(params)}`;
}
