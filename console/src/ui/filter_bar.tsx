// Conditions as chips, and a field to add more: `user:alice status:error duration:>2s words`. "/" focuses it.

import { useEffect, useId, useState } from "preact/hooks";
import { setParams, useParams } from "../app/router.ts";
import { type FilterKey, parseQuery } from "../lib/query.ts";
import { formatDuration } from "../lib/units.ts";
import { classes } from "./basics.tsx";
import { CloseIcon, SearchIcon } from "./icons.tsx";
import { useDismiss } from "./overlays.tsx";

interface FilterBarProps {
  keys: FilterKey[];
  placeholder: string;
  /** Parameters that a new filter makes meaningless, such as the cursor or the selected row. */
  resets?: string[];
}

/** The parameters that a bar with these keys may set, to hand on to the server. */
export function filterNames(keys: FilterKey[]): string[] {
  return [...keys.flatMap((key) => (key.duration ? [`min_${key.key}`, `max_${key.key}`] : [key.key])), "text"];
}

function chipText(keys: FilterKey[], name: string, value: string): string {
  if (name === "text") return `“${value}”`;
  const duration = /^(min|max)_(.+)$/.exec(name);
  const base = duration && keys.find((key) => key.duration && key.key === duration[2]);
  if (duration && base)
    return `${base.label.toLowerCase()} ${duration[1] === "min" ? "≥" : "≤"} ${formatDuration(Number(value))}`;
  return `${keys.find((key) => key.key === name)?.label.toLowerCase() ?? name}: ${value}`;
}

export function FilterBar({ keys, placeholder, resets = [] }: FilterBarProps) {
  const names = filterNames(keys);
  const set = useParams(names);
  const [input, setInput] = useState("");
  const [open, setOpen] = useState(false);
  const [at, setAt] = useState(-1);
  const [problem, setProblem] = useState("");
  const ref = useDismiss(open, () => setOpen(false));
  const id = useId();
  const cleared = Object.fromEntries(resets.map((name) => [name, null]));

  const word = input.slice(input.lastIndexOf(" ") + 1);
  const suggestions = suggest(keys, word);
  useEffect(() => setAt(-1), [word]);

  const apply = (text: string) => {
    const parsed = parseQuery(text, keys);
    setProblem(parsed.problems.join(" "));
    if (parsed.problems.length) return;
    const changes: Record<string, string | null> = { ...cleared, ...parsed.filters };
    if (parsed.text) changes["text"] = parsed.text;
    setParams(changes);
    setInput("");
    setOpen(false);
  };
  const take = (suggestion: Suggestion) => {
    const head = input.slice(0, input.length - word.length);
    if (suggestion.complete) apply(head + suggestion.insert);
    else setInput(head + suggestion.insert);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (!suggestions.length) return;
      event.preventDefault();
      setOpen(true);
      const count = suggestions.length;
      setAt((at + (event.key === "ArrowDown" ? 1 : at < 0 ? 0 : -1) + count) % count);
    } else if (event.key === "Tab" && open && at >= 0) {
      event.preventDefault();
      take(suggestions[at]!);
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (open && at >= 0) take(suggestions[at]!);
      else if (input.trim()) apply(input);
    } else if (event.key === "Backspace" && input === "") {
      const last = Object.keys(set).at(-1);
      if (last) setParams({ ...cleared, [last]: null });
    } else if (event.key === "Escape") {
      if (!open) (event.currentTarget as HTMLElement).blur();
    }
  };
  const chips = Object.entries(set);
  return (
    <div class="filter" ref={ref} role="search">
      <SearchIcon />
      {chips.map(([name, value]) => (
        <span class="chip" key={name}>
          <span title={chipText(keys, name, value)}>{chipText(keys, name, value)}</span>
          <button
            type="button"
            aria-label={`Remove the filter ${chipText(keys, name, value)}`}
            onClick={() => setParams({ ...cleared, [name]: null })}
          >
            <CloseIcon />
          </button>
        </span>
      ))}
      <input
        type="text"
        value={input}
        placeholder={chips.length ? "Add a filter" : placeholder}
        aria-label={placeholder}
        data-keys="search"
        role="combobox"
        aria-expanded={open && suggestions.length > 0}
        aria-controls={`${id}-list`}
        aria-autocomplete="list"
        aria-activedescendant={open && at >= 0 ? `${id}-${at}` : undefined}
        autocomplete="off"
        spellcheck={false}
        onInput={(event) => {
          setInput(event.currentTarget.value);
          setProblem("");
          setOpen(true);
        }}
        onFocus={() => setOpen(true)}
        onBlur={(event) => {
          if (!ref.current?.contains(event.relatedTarget as Node)) setOpen(false);
        }}
        onKeyDown={onKeyDown}
      />
      {(chips.length > 1 || (chips.length > 0 && input)) && (
        <button
          type="button"
          class="btn quiet small"
          onClick={() => setParams({ ...cleared, ...Object.fromEntries(names.map((name) => [name, null])) })}
        >
          Clear
        </button>
      )}
      {problem && (
        <div class="filter-problem" role="alert">
          {problem}
        </div>
      )}
      <div
        id={`${id}-list`}
        class={classes("pop", !(open && suggestions.length) && "visually-hidden")}
        role="listbox"
        aria-label="Filters"
        hidden={!(open && suggestions.length)}
      >
        {suggestions.map((suggestion, i) => (
          <div
            key={suggestion.insert}
            id={`${id}-${i}`}
            role="option"
            aria-selected={i === at}
            class={classes("menu-item", i === at && "active")}
            onPointerDown={(event) => {
              event.preventDefault();
              take(suggestion);
            }}
          >
            <code>{suggestion.insert}</code>
            <span class="muted clip">{suggestion.note}</span>
          </div>
        ))}
      </div>
    </div>
  );
}

interface Suggestion {
  insert: string;
  note: string;
  complete: boolean;
}

function suggest(keys: FilterKey[], word: string): Suggestion[] {
  const colon = word.indexOf(":");
  if (colon < 0)
    return keys
      .filter((key) => key.key.startsWith(word.toLowerCase()) || key.label.toLowerCase().startsWith(word.toLowerCase()))
      .map((key) => ({ insert: `${key.key}:`, note: key.example ?? key.label, complete: false }));
  const key = keys.find((candidate) => candidate.key === word.slice(0, colon));
  const begun = word.slice(colon + 1).toLowerCase();
  const values = key?.duration ? [">100ms", ">1s", ">10s", "<100ms"] : (key?.values ?? []);
  return values
    .filter((value) => value.toLowerCase().includes(begun) && value.toLowerCase() !== begun)
    .slice(0, 12)
    .map((value) => ({ insert: `${key!.key}:${/\s/.test(value) ? `"${value}"` : value}`, note: "", complete: true }));
}
