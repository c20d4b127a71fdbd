// Search the log, follow it, and go from a line to its span and back.

import { useState } from "preact/hooks";
import { who } from "../../api/client.ts";
import type { LogRecord } from "../../api/types.ts";
import { useChoice, useParam, useParams } from "../../app/router.ts";
import { live, range } from "../../app/state.ts";
import type { FilterKey } from "../../lib/query.ts";
import { formatNumber } from "../../lib/units.ts";
import { classes, Empty, ErrorBox, Segments, Skeleton } from "../../ui/basics.tsx";
import { FilterBar, filterNames } from "../../ui/filter_bar.tsx";
import { levels } from "../../ui/levels.ts";
import { Detail } from "./detail.tsx";
import { LogList } from "./list.tsx";
import { lineKey, linesMax } from "./stream.ts";
import { useLines } from "./use_lines.ts";

const keys: FilterKey[] = [
  { key: "event", label: "Event", example: "such as http.access, or worker.*" },
  { key: "user", label: "User" },
  { key: "session", label: "Session", example: "id of a session" },
  { key: "run", label: "Run", example: "id of a training run" },
  { key: "sampler", label: "Sampler", example: "id of a sampling session" },
  { key: "request", label: "Request", example: "id of an operation" },
  {
    key: "operation",
    label: "Operation",
    values: ["forward_backward", "forward", "optim_step", "sample", "save_weights", "load_weights"],
  },
  { key: "base_model", label: "Model" },
  { key: "trace", label: "Trace", example: "id of a trace" },
  { key: "span", label: "Span", example: "id of a span" },
  { key: "service", label: "Service", example: "tuft, or your own program's" },
];

export default function Page() {
  const operator = who.value?.operator;
  const shownKeys = operator ? keys : keys.filter((key) => key.key !== "user");
  const filters = useParams(filterNames(keys));
  const [level, setLevel] = useChoice("level", levels, "info");
  const [selected, select] = useParam("line");
  const [open, setOpen] = useState<LogRecord | null>(null);
  // Lines of one trace are wanted all, whatever the level and the time.
  const whole = Boolean(filters["trace"]) && !new URLSearchParams(location.search).has("level");
  const { lines, error, loading, loadingOlder, loadOlder, reload } = useLines(
    { ...filters, level: whole ? "debug" : level },
    { from: range.value.from, until: range.value.until },
  );
  const { logs } = lines;
  const detail = open && lineKey(open) === selected ? open : (logs.find((log) => lineKey(log) === selected) ?? null);
  const head = loading
    ? "Searching …"
    : loadingOlder
      ? "Loading older lines …"
      : `${formatNumber(logs.length)} lines${lines.older ? ", scroll up for more" : ""}${lines.dropped ? `, the newest ${formatNumber(linesMax)}` : ""}${live.value ? "" : ", paused"}`;
  return (
    <div class="log-page">
      <div class="row">
        <Segments
          label="Least level"
          value={whole ? "debug" : level}
          options={[
            ["debug", "Debug"],
            ["info", "Info"],
            ["warning", "Warning"],
            ["error", "Error"],
          ]}
          onChange={setLevel}
        />
        <FilterBar
          keys={shownKeys}
          placeholder="Search the log: words, or event:worker.* request:…"
          resets={["line"]}
        />
      </div>
      {error && <ErrorBox error={error} retry={reload} />}
      <div class={classes("log-split", !detail && "alone", loading && "stale")} aria-busy={loading}>
        {loading && logs.length === 0 ? (
          <Skeleton height={400} />
        ) : logs.length === 0 ? (
          !error && <Nothing level={level} filtered={Object.keys(filters).length > 0} />
        ) : (
          <LogList
            logs={logs}
            text={filters["text"] ?? ""}
            selected={selected}
            head={head}
            onTop={loadOlder}
            onSelect={(log) => {
              setOpen(log);
              select(log ? lineKey(log) : null);
            }}
          />
        )}
        {detail && (
          <Detail
            log={detail}
            onClose={() => {
              setOpen(null);
              select(null);
            }}
          />
        )}
      </div>
    </div>
  );
}

function Nothing({ level, filtered }: { level: string; filtered: boolean }) {
  return (
    <div class="card">
      <Empty title="No line matches">
        <p>
          {filtered ? "Remove a filter, choose a longer time range" : "Choose a longer time range"}
          {level === "debug" ? "." : ", or show more levels: events of single operations are debug."}
        </p>
      </Empty>
    </div>
  );
}
