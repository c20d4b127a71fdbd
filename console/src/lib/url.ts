// Addresses of the console: a path below /console and the state of the view as query parameters.

export const base = "/console";

export type Params = Record<string, string | number | boolean | null | undefined>;

/** Parameters that follow the reader from page to page. */
export const sticky = ["from", "until"];

/** "?a=1&b=2" without empty values, in the order given; "" if there are none. */
export function toQuery(params: Params): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(params))
    if (value !== null && value !== undefined && value !== "") search.set(key, String(value));
  const text = search.toString();
  return text ? `?${text}` : "";
}

/** Merges changes into a query: null and "" remove a parameter. */
export function withParams(search: string, changes: Params): string {
  const params = new URLSearchParams(search);
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") params.delete(key);
    else params.set(key, String(value));
  }
  const text = params.toString();
  return text ? `?${text}` : "";
}

/** The address of another page, with the sticky parameters of this one unless `params` sets them. */
export function pageHref(path: string, search: string, params: Params = {}): string {
  const current = new URLSearchParams(search);
  const kept: Params = {};
  for (const key of sticky) if (current.has(key)) kept[key] = current.get(key);
  return base + (path === "/" ? "/" : path) + toQuery({ ...kept, ...params });
}

/** The path below /console, "/" for the first page. */
export function pathOf(pathname: string): string {
  const path = pathname.startsWith(base) ? pathname.slice(base.length) : pathname;
  return path.replace(/\/+$/, "") || "/";
}

/** Matches "/traces/:id" with "/traces/4bf9": { id: "4bf9" }; null: no match. A final "*" takes the rest. */
export function matchPath(pattern: string, path: string): Record<string, string> | null {
  const wanted = pattern.split("/");
  const given = decodeParts(path);
  if (!given) return null;
  const found: Record<string, string> = {};
  for (let i = 0; i < wanted.length; i++) {
    const part = wanted[i]!;
    if (part === "*") {
      found["rest"] = given.slice(i).join("/");
      return found;
    }
    if (given[i] === undefined) return null;
    if (part.startsWith(":")) {
      if (!given[i]) return null;
      found[part.slice(1)] = given[i]!;
    } else if (part !== given[i]) return null;
  }
  return given.length === wanted.length ? found : null;
}

/** The decoded parts of a path; null if it is not well formed. */
function decodeParts(path: string): string[] | null {
  try {
    return path.split("/").map(decodeURIComponent);
  } catch {
    return null;
  }
}
