// An answer token by token: the less likely, the stronger its colour. A token that is hovered or focused says what else
// the model thought of.

import { useMemo, useState } from "preact/hooks";
import { formatShare } from "../../lib/units.ts";
import { classes } from "../../ui/basics.tsx";
import { surpriseLevel, type Token, textsOf, visibleToken } from "./stream.ts";

interface Props {
  tokens: readonly Token[];
  coloured: boolean;
  /** From here on the answer differs from the one beside it. */
  difference: number | null;
  streaming: boolean;
}

export function Tokens({ tokens, coloured, difference, streaming }: Props) {
  const texts = useMemo(() => textsOf(tokens), [tokens]);
  const [active, setActive] = useState<number | null>(null);
  const [focus, setFocus] = useState(0);
  const place = Math.min(focus, Math.max(0, tokens.length - 1));
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const next = event.key === "Home" ? 0 : event.key === "End" ? tokens.length - 1 : step ? place + step : null;
    if (next === null || next < 0 || next >= tokens.length) return;
    event.preventDefault();
    setFocus(next);
    (event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("[data-token]")[next]?.focus();
  };
  const shown = active === null ? undefined : tokens[active];
  return (
    <>
      <div
        class="tokens"
        role="group"
        aria-label="The answer, token by token"
        onKeyDown={onKeyDown}
        onPointerLeave={() => setActive(null)}
      >
        {tokens.map((token, i) => (
          <span
            key={i}
            data-token
            role="button"
            tabIndex={i === place ? 0 : -1}
            class={classes(
              "token",
              coloured && `surprise-${surpriseLevel(token.logprob)}`,
              i === active && "on",
              difference !== null && i === difference && "differs",
            )}
            aria-label={`${visibleToken(token.text)}${token.logprob === null ? "" : `, ${formatShare(Math.exp(token.logprob))}`}`}
            onPointerEnter={() => setActive(i)}
            onFocus={() => {
              setFocus(i);
              setActive(i);
            }}
            onClick={() => setActive(i)}
          >
            {texts[i] === "" ? <span class="token-empty">∅</span> : texts[i]}
          </span>
        ))}
        {streaming && <span class="caret" aria-hidden="true" />}
      </div>
      <TokenCard token={shown} place={active} />
    </>
  );
}

/** The room is always there, so that nothing moves under the pointer. */
function TokenCard({ token, place }: { token: Token | undefined; place: number | null }) {
  if (!token || place === null) {
    return (
      <div class="token-card muted">
        Point at a token, or go through them with the arrow keys, to see its alternatives.
      </div>
    );
  }
  const known = token.alternatives.some((one) => one.text === token.text);
  const rows =
    known || token.logprob === null
      ? token.alternatives
      : [...token.alternatives, { text: token.text, logprob: token.logprob }];
  return (
    <div class="token-card" aria-live="polite">
      <div class="row tight">
        <code class="token-shown">{visibleToken(token.text)}</code>
        <span class="muted">
          token {place + 1}
          {token.logprob !== null && `, log-probability ${token.logprob.toFixed(3)}`}
        </span>
      </div>
      <ol>
        {rows.map((one) => (
          <li key={one.text} class={classes(one.text === token.text && "chosen")}>
            <code>{visibleToken(one.text)}</code>
            <span class="track" aria-hidden="true">
              <span style={{ width: `${Math.max(0.5, Math.exp(one.logprob) * 100)}%` }} />
            </span>
            <span>{formatShare(Math.exp(one.logprob))}</span>
          </li>
        ))}
      </ol>
    </div>
  );
}
