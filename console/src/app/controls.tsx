// The controls at the top of each page: the time range, the live switch, the look.

import { useState } from "preact/hooks";
import { describeRange, fromInputTime, isRelative, nowMicros, presets, toInputTime, zoneOf } from "../lib/time.ts";
import { AutoIcon, ChevronDown, ClockIcon, MoonIcon, SunIcon, ZoomOutIcon } from "../ui/icons.tsx";
import { useDismiss } from "../ui/overlays.tsx";
import { live, range, resolvedRange, setAbsoluteRange, setRange, theme, toggleLive } from "./state.ts";

export function RangePicker() {
  const [open, setOpen] = useState(false);
  const ref = useDismiss(open, () => setOpen(false));
  const current = range.value;
  const zoomOut = () => {
    const { from, until } = resolvedRange();
    const half = (until - from) / 2;
    setAbsoluteRange(from - half, Math.min(until + half, nowMicros()));
  };
  return (
    <div class="pop-anchor row tight" ref={ref}>
      {!isRelative(current) && (
        <button
          type="button"
          class="btn quiet icon hide-phone"
          onClick={zoomOut}
          aria-label="Show twice as long a time"
          title="Show twice as long a time"
        >
          <ZoomOutIcon />
        </button>
      )}
      <button type="button" class="btn" aria-expanded={open} aria-haspopup="dialog" onClick={() => setOpen(!open)}>
        <ClockIcon />
        <span class={isRelative(current) ? "hide-phone" : ""}>{describeRange(current)}</span>
        {isRelative(current) && <span class="only-phone">{current.from.slice(1)}</span>}
        <ChevronDown />
      </button>
      {open && (
        <div class="pop" role="dialog" aria-label="Time range">
          {presets.map((preset) => (
            <button
              type="button"
              key={preset.from}
              class="menu-item"
              role="menuitemradio"
              aria-checked={current.until === "" && current.from === preset.from}
              onClick={() => {
                setRange({ from: preset.from, until: "" });
                setOpen(false);
              }}
            >
              Last {preset.label}
            </button>
          ))}
          <AbsoluteRange onDone={() => setOpen(false)} />
        </div>
      )}
    </div>
  );
}

function AbsoluteRange({ onDone }: { onDone: () => void }) {
  const now = resolvedRange();
  const [from, setFrom] = useState(toInputTime(now.from));
  const [until, setUntil] = useState(toInputTime(now.until));
  const start = fromInputTime(from);
  const end = fromInputTime(until);
  const valid = start !== null && end !== null && start < end;
  return (
    <form
      class="stack tight range-form"
      onSubmit={(event) => {
        event.preventDefault();
        if (!valid) return;
        setAbsoluteRange(start, end);
        onDone();
      }}
    >
      <label class="field">
        From
        <input
          class="input"
          type="datetime-local"
          step="1"
          value={from}
          onInput={(event) => setFrom(event.currentTarget.value)}
        />
      </label>
      <label class="field">
        Until
        <input
          class="input"
          type="datetime-local"
          step="1"
          value={until}
          onInput={(event) => setUntil(event.currentTarget.value)}
        />
      </label>
      <button type="submit" class="btn primary" disabled={!valid}>
        Show this time
      </button>
      <span class="muted range-zone">Times are in {zoneOf()}.</span>
    </form>
  );
}

export function LiveSwitch() {
  const isLive = live.value;
  return (
    <button
      type="button"
      class={isLive ? "btn" : "btn paused"}
      role="switch"
      aria-checked={isLive}
      aria-label="Refresh by itself"
      title={
        isLive ? "The page refreshes itself. Press to pause (space)" : "The page stands still. Press to go on (space)"
      }
      onClick={toggleLive}
    >
      <span class="live-dot" />
      <span class="hide-phone">{isLive ? "Live" : "Paused"}</span>
    </button>
  );
}

const themes = { auto: AutoIcon, light: SunIcon, dark: MoonIcon };
const themeNames = { auto: "as the system", light: "light", dark: "dark" };

export function ThemeSwitch() {
  const current = theme.value;
  const next = current === "auto" ? "dark" : current === "dark" ? "light" : "auto";
  const Icon = themes[current];
  return (
    <button
      type="button"
      class="btn quiet icon"
      onClick={() => {
        theme.value = next;
      }}
      aria-label={`Look: ${themeNames[current]}. Change to ${themeNames[next]}`}
      title={`Look: ${themeNames[current]}`}
    >
      <Icon />
    </button>
  );
}
