// One model's answer.

import { formatDuration, formatNumber } from "../../lib/units.ts";
import { Badge, ErrorBox } from "../../ui/basics.tsx";
import { perplexity } from "./stream.ts";
import { Tokens } from "./tokens.tsx";
import type { Completion } from "./use_completion.ts";

interface Props {
  letter: string;
  model: string;
  completion: Completion;
  coloured: boolean;
  difference: number | null;
}

const FINISHED: Readonly<Record<string, string>> = {
  stop: "the model ended, or a stop string came",
  length: "max_tokens was reached",
};

export function Pane({ letter, model, completion, coloured, difference }: Props) {
  const { state, tokens } = completion;
  return (
    <section class="card pane" aria-label={`Answer ${letter}`} aria-busy={state === "waiting" || state === "streaming"}>
      <div class="pane-head">
        <span class="compare-letter">{letter}</span>
        <code class="clip" title={model}>
          {model || "no model chosen"}
        </code>
        <State completion={completion} />
      </div>
      {state === "none" ? (
        <p class="pane-empty muted">The answer appears here as it is drawn.</p>
      ) : (
        <div class="pane-body">
          {completion.error && <ErrorBox error={completion.error} />}
          {(tokens.length > 0 || !completion.error) && (
            <Tokens
              tokens={tokens}
              coloured={coloured}
              difference={difference}
              streaming={state === "waiting" || state === "streaming"}
            />
          )}
          <Figures completion={completion} difference={difference} />
        </div>
      )}
    </section>
  );
}

function State({ completion }: { completion: Completion }) {
  switch (completion.state) {
    case "waiting":
      return <Badge>waiting</Badge>;
    case "streaming":
      return <Badge tone="accent">streaming</Badge>;
    case "stopped":
      return <Badge>stopped</Badge>;
    case "failed":
      return <Badge tone="bad">failed</Badge>;
    case "done":
      return (
        <Badge tone="ok" title={FINISHED[completion.finish ?? ""]}>
          {completion.finish ?? "done"}
        </Badge>
      );
    default:
      return null;
  }
}

function Figures({ completion, difference }: { completion: Completion; difference: number | null }) {
  const { tokens, firstAfter, took } = completion;
  if (tokens.length === 0) return null;
  const rest = firstAfter === null ? 0 : took - firstAfter;
  const rate = rest > 0 && tokens.length > 1 ? ((tokens.length - 1) / rest) * 1000 : null;
  const surprise = perplexity(tokens);
  return (
    <dl class="pane-figures">
      <Figure name="Tokens" value={formatNumber(tokens.length)} />
      <Figure name="First token after" value={formatDuration(firstAfter === null ? null : firstAfter * 1000)} />
      <Figure name="Tokens/s" value={rate === null ? "–" : formatNumber(rate)} />
      {surprise !== null && <Figure name="Perplexity" value={surprise.toFixed(2)} />}
      {difference !== null && <Figure name="Differs from" value={`token ${difference + 1} on`} />}
    </dl>
  );
}

function Figure({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}
