// Why a trace took its time: the server's words, and its parts as one bar.

import type { Explanation as Answer, ExplanationPart } from "../../api/types.ts";
import { formatSeconds, formatShare } from "../../lib/units.ts";
import { partKind, workColour } from "../../trace/palette.ts";
import { NONE } from "../../trace/tree.ts";
import type { TraceView } from "../../trace/use_trace_view.ts";
import { classes } from "../../ui/basics.tsx";
import { useTheme } from "../../ui/colors.ts";

const WORDS: Readonly<Record<string, string>> = {
  queue_own: "behind own work",
  queue_others: "behind others",
  sequence: "waiting for its turn",
  prefill: "prefill",
  decode: "decode",
  forward: "forward",
  backward: "backward",
  optimizer: "optimizer",
  schedule: "scheduling",
  store: "state store",
  network: "network",
  save: "saving",
  paging: "adapter in its page",
  server: "server",
  other: "other",
};

/** Waiting behind others is hatched: it has the colour of waiting, but another cause. */
const isHatched = (kind: string) => kind === "queue_others";

export function Explanation({ answer, state }: { answer: Answer; state: TraceView }) {
  const isDark = useTheme();
  const parts = answer.parts.filter((part) => part.share > 0);
  const colour = (part: ExplanationPart) => workColour(partKind(part.kind), isDark ? "dark" : "light");
  const spanOf = (part: ExplanationPart) => (part.span_id ? state.tree.find(part.span_id) : NONE);
  const isSelected = (part: ExplanationPart) => state.selected !== NONE && spanOf(part) === state.selected;
  return (
    <section class="card why" aria-label="Why it took its time">
      <p class="why-summary">{answer.summary}</p>
      {parts.length > 0 && (
        <>
          <div class="why-bar" aria-hidden="true">
            {parts.map((part, i) => (
              <button
                key={`${part.kind}${i}`}
                type="button"
                tabIndex={-1}
                class={classes(isSelected(part) && "on", isHatched(part.kind) && "hatched")}
                style={{ flexGrow: String(Math.max(part.share, 0.004)), backgroundColor: colour(part) }}
                title={`${WORDS[part.kind] ?? part.kind}: ${formatSeconds(part.seconds)}, ${formatShare(part.share)}`}
                onClick={() => spanOf(part) !== NONE && state.select(spanOf(part))}
              />
            ))}
          </div>
          <ol class="why-parts">
            {parts.map((part, i) => (
              <li key={`${part.kind}${i}`}>
                <button
                  type="button"
                  class={classes(isSelected(part) && "on")}
                  disabled={spanOf(part) === NONE}
                  aria-pressed={isSelected(part)}
                  onClick={() => state.select(spanOf(part))}
                >
                  <span
                    class={classes("swatch", isHatched(part.kind) && "hatched")}
                    style={{ backgroundColor: colour(part) }}
                  />
                  <b>{formatShare(part.share)}</b>
                  <span class="why-time">{formatSeconds(part.seconds)}</span>
                  <span class="why-text">{part.text || WORDS[part.kind] || part.kind}</span>
                </button>
              </li>
            ))}
          </ol>
        </>
      )}
    </section>
  );
}
