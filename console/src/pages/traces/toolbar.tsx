// How a trace is shown: as what, by which colours, and what is looked for in it.

import { useMemo, useState } from "preact/hooks";
import { KEY_HELP } from "../../trace/keys.ts";
import { type ColourBy, WORK_KINDS, WORK_WORDS, workColour, workKind } from "../../trace/palette.ts";
import { collapseBelow } from "../../trace/rows.ts";
import { nextMatch } from "../../trace/search.ts";
import { NONE } from "../../trace/tree.ts";
import { COLOUR_CHOICES, type TraceView } from "../../trace/use_trace_view.ts";
import { isWhole } from "../../trace/viewport.ts";
import { Segments } from "../../ui/basics.tsx";
import { useTheme } from "../../ui/colors.ts";
import { ChevronDown, ChevronUp, KeyboardIcon, ZoomOutIcon } from "../../ui/icons.tsx";
import { useDismiss } from "../../ui/overlays.tsx";

export const VIEWS = ["waterfall", "flame", "table"] as const;
export type ViewName = (typeof VIEWS)[number];

export function TraceToolbar({
  state,
  view,
  setView,
}: {
  state: TraceView;
  view: ViewName;
  setView: (view: ViewName) => void;
}) {
  const { tree, critical } = state;
  return (
    <div class="trace-tools">
      <Segments
        label="View"
        value={view}
        options={[
          ["waterfall", "Waterfall"],
          ["flame", "Flame graph"],
          ["table", "Table"],
        ]}
        onChange={setView}
      />
      <SearchField state={state} />
      <select
        class="select"
        aria-label="Colour by"
        title="Colour by"
        value={state.colourBy}
        onChange={(event) => state.setColourBy(event.currentTarget.value as ColourBy)}
      >
        {COLOUR_CHOICES.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
      <button
        type="button"
        class="btn small"
        aria-pressed={state.onlyCritical}
        disabled={critical.pieces.length === 0}
        title="What is off the critical path becomes pale"
        onClick={() => state.setOnlyCritical(!state.onlyCritical)}
      >
        Critical path
      </button>
      {view === "waterfall" && tree.maxDepth > 1 && (
        <button
          type="button"
          class="btn small"
          onClick={() => state.setCollapsed(state.collapsed.size ? new Set() : collapseBelow(tree, 1))}
        >
          {state.collapsed.size ? "Unfold all" : "Fold"}
        </button>
      )}
      {view !== "table" && (
        <button
          type="button"
          class="btn small icon"
          aria-label="Show the whole trace"
          title="Show the whole trace (0)"
          disabled={isWhole(state.view, tree.duration)}
          onClick={() => state.setView({ from: 0, to: tree.duration })}
        >
          <ZoomOutIcon />
        </button>
      )}
      <Keys />
    </div>
  );
}

function SearchField({ state }: { state: TraceView }) {
  const { tree, matches, selected } = state;
  const step = (by: 1 | -1) => {
    const next = matches ? nextMatch(tree, matches, selected, by) : NONE;
    if (next !== NONE) state.select(next);
  };
  return (
    <div class="trace-search">
      <input
        class="input"
        type="search"
        value={state.search}
        placeholder="Find spans"
        aria-label="Find spans by name, service, status or key=value"
        title="Words of the name, the service, the status or an attribute; key=value; failed"
        data-keys="search"
        onInput={(event) => state.setSearch(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
        }}
      />
      <span class="trace-found" role="status">
        {matches ? matches.count.toLocaleString("en-US") : ""}
      </span>
      {matches && (
        <>
          <button
            type="button"
            class="btn quiet small icon"
            aria-label="Previous match"
            disabled={!matches.count}
            onClick={() => step(-1)}
          >
            <ChevronUp />
          </button>
          <button
            type="button"
            class="btn quiet small icon"
            aria-label="Next match"
            disabled={!matches.count}
            onClick={() => step(1)}
          >
            <ChevronDown />
          </button>
        </>
      )}
    </div>
  );
}

function Keys() {
  const [open, setOpen] = useState(false);
  const ref = useDismiss(open, () => setOpen(false));
  return (
    <div class="pop-anchor" ref={ref}>
      <button
        type="button"
        class="btn quiet small icon"
        aria-label="Keys of the timeline"
        aria-expanded={open}
        onClick={() => setOpen(!open)}
      >
        <KeyboardIcon />
      </button>
      {open && (
        <div class="pop trace-keys">
          <dl>
            {KEY_HELP.map(([keys, what]) => (
              <div key={keys}>
                <dt>
                  {keys.split(" ").map((key) => (
                    <kbd key={key}>{key}</kbd>
                  ))}
                </dt>
                <dd>{what}</dd>
              </div>
            ))}
          </dl>
          <p class="muted">
            Drag the axis or the strip above to zoom, Ctrl and the wheel too. Drag the bars to move in time.
          </p>
        </div>
      )}
    </div>
  );
}

/** The colours that occur, and the signs. */
export function KindLegend({ state }: { state: TraceView }) {
  const isDark = useTheme();
  const present = useMemo(() => new Set(state.tree.spans.map(workKind)), [state.tree]);
  return (
    <ul class="trace-legend" aria-label="Colours">
      {WORK_KINDS.filter((kind) => present.has(kind)).map((kind) => (
        <li key={kind}>
          <span class="swatch" style={{ backgroundColor: workColour(kind, isDark ? "dark" : "light") }} />
          {WORK_WORDS[kind]}
        </li>
      ))}
      {state.critical.pieces.length > 0 && (
        <li>
          <span class="sign-critical" /> critical path
        </li>
      )}
    </ul>
  );
}
