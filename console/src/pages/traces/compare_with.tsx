// Remembers a trace until another one is chosen to be compared with it.

import { signal } from "@preact/signals";
import type { Trace } from "../../api/types.ts";
import { Link } from "../../ui/basics.tsx";

const storageKey = "tuft.compare";

function read(): { id: string; name: string } | null {
  try {
    return JSON.parse(sessionStorage.getItem(storageKey) ?? "null") as { id: string; name: string } | null;
  } catch {
    return null;
  }
}

export const held = signal(typeof sessionStorage === "undefined" ? null : read());

export function hold(value: { id: string; name: string } | null): void {
  held.value = value;
  try {
    sessionStorage.setItem(storageKey, JSON.stringify(value));
  } catch {
    // Without storage the choice lasts until the page is left.
  }
}

export function CompareWith({ trace, name }: { trace: Trace; name: string }) {
  const other = held.value;
  if (!other || other.id === trace.trace_id) {
    return (
      <button
        type="button"
        class="btn small"
        aria-pressed={other?.id === trace.trace_id}
        title="Then open another trace and compare the two"
        onClick={() => hold(other ? null : { id: trace.trace_id, name })}
      >
        {other ? "Held for comparison" : "Compare…"}
      </button>
    );
  }
  return (
    <Link
      class="btn small"
      to={`/traces/compare/${other.id}/${trace.trace_id}`}
      title={`With ${other.name}, ${other.id.slice(0, 8)}`}
    >
      Compare with {other.id.slice(0, 8)}
    </Link>
  );
}
