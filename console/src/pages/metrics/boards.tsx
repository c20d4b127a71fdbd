import { useState } from "preact/hooks";
import { who } from "../../api/client.ts";
import type { MetricInfo } from "../../api/types.ts";
import { href, setParams, useParam } from "../../app/router.ts";
import { boards } from "../../lib/boards.ts";
import { decodePanels, encodePanels, type Panel } from "../../lib/panels.ts";
import { Empty, Segments, writeClipboard } from "../../ui/basics.tsx";
import { ChevronLeft, ChevronRight, LinkIcon, PlusIcon, TrashIcon } from "../../ui/icons.tsx";
import { PanelCard } from "../../ui/panel.tsx";
import { operationSpan, SpanCard, type SpanQuery } from "../../ui/span_chart.tsx";
import { addPanels, movePanel, removePanel, savedPanels } from "./saved.ts";

const mine = "mine";
const yours = "yours";
const choices = [...boards.map((board) => [board.id, board.title] as const), [mine, "My panels"] as const];

export function Boards({ catalogue, shared }: { catalogue: MetricInfo[] | undefined; shared: string }) {
  const operator = who.value?.operator ?? false;
  const [chosen, choose] = useParam("board", shared ? mine : operator ? boards[0]!.id : yours);
  const board = boards.find((candidate) => candidate.id === chosen);
  return (
    <>
      <div class="scroll-x">
        <Segments
          label="Board"
          value={board?.id ?? (chosen === yours ? yours : mine)}
          options={operator ? choices : [[yours, "Your requests"] as const, ...choices]}
          onChange={choose}
        />
      </div>
      {board ? (
        <Grid panels={board.panels} catalogue={catalogue} />
      ) : chosen === yours ? (
        <Yours />
      ) : (
        <Mine catalogue={catalogue} shared={decodePanels(shared)} />
      )}
    </>
  );
}

const charts: { title: string; query: SpanQuery; kind?: "stack" | "bars" }[] = [
  { title: "Operations by type", query: { fn: "rate", by: "operation" }, kind: "stack" },
  { title: "Median latency", query: { fn: "p50", by: "operation" } },
  { title: "Latency (p95)", query: { fn: "p95", by: "operation" } },
  { title: "Failed operations", query: { fn: "errors", by: "operation" }, kind: "bars" },
  { title: "Operations at work", query: { fn: "busy", by: "operation" }, kind: "stack" },
  { title: "Operations by model", query: { fn: "rate", by: "base_model" }, kind: "stack" },
];

/** What a user may see whatever the labels of metrics: their own operations. */
function Yours() {
  return (
    <div class="grid-3 charts">
      {charts.map((chart) => (
        <SpanCard
          key={chart.title}
          title={chart.title}
          query={{ ...chart.query, filters: { name: operationSpan } }}
          kind={chart.kind}
          to="/traces"
          empty="No operation in this time range"
        />
      ))}
    </div>
  );
}

interface GridProps {
  panels: Panel[];
  catalogue: MetricInfo[] | undefined;
  owned?: boolean;
}

function Grid({ panels, catalogue, owned }: GridProps) {
  const known = new Set(catalogue?.map((metric) => metric.name));
  return (
    <div class="grid-3 charts">
      {panels.map((panel) => (
        <PanelCard
          key={panel.id + panel.title}
          panel={panel}
          empty={catalogue && !known.has(panel.queries[0]!.metric) ? "Nothing has recorded this metric yet" : undefined}
          actions={owned ? <OwnActions panel={panel} count={panels.length} /> : <Keep panel={panel} />}
        />
      ))}
    </div>
  );
}

function Keep({ panel }: { panel: Panel }) {
  const [kept, setKept] = useState(false);
  return (
    <button
      type="button"
      class="btn quiet icon small"
      disabled={kept}
      aria-label={`Add “${panel.title}” to my panels`}
      title={kept ? "It is in your panels" : "Add to my panels"}
      onClick={() => {
        addPanels([panel]);
        setKept(true);
      }}
    >
      <PlusIcon />
    </button>
  );
}

function OwnActions({ panel, count }: { panel: Panel; count: number }) {
  return (
    <span class="row own-actions">
      {count > 1 && (
        <>
          <button
            type="button"
            class="btn quiet icon small"
            aria-label={`Move ${panel.title} to the left`}
            onClick={() => movePanel(panel.id, -1)}
          >
            <ChevronLeft />
          </button>
          <button
            type="button"
            class="btn quiet icon small"
            aria-label={`Move ${panel.title} to the right`}
            onClick={() => movePanel(panel.id, 1)}
          >
            <ChevronRight />
          </button>
        </>
      )}
      <button
        type="button"
        class="btn quiet icon small"
        aria-label={`Remove ${panel.title}`}
        title="Remove"
        onClick={() => removePanel(panel.id)}
      >
        <TrashIcon />
      </button>
    </span>
  );
}

/** The reader's panels, and those of an address that somebody sent. */
function Mine({ catalogue, shared }: { catalogue: MetricInfo[] | undefined; shared: Panel[] }) {
  const panels = savedPanels.value;
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    const address = location.origin + href("/metrics", { board: mine, panels: encodePanels(panels) });
    setCopied(await writeClipboard(address));
    setTimeout(() => setCopied(false), 1500);
  };
  if (shared.length > 0)
    return (
      <>
        <div class="card notice-bar">
          <span class="grow">These {shared.length} panels came with the address.</span>
          <button
            type="button"
            class="btn primary"
            onClick={() => {
              addPanels(shared);
              setParams({ panels: null, board: mine });
            }}
          >
            Keep them in this browser
          </button>
          <button type="button" class="btn" onClick={() => setParams({ panels: null, board: mine })}>
            Show mine
          </button>
        </div>
        <Grid panels={shared} catalogue={catalogue} />
      </>
    );
  if (!panels.length)
    return (
      <div class="card">
        <Empty title="You have no panels yet">
          <p>
            Open a metric under <b>All metrics</b>, make the chart you want, and press <b>Save panel</b>; or press + on
            a panel of another board. They are kept in this browser and can be sent as an address.
          </p>
        </Empty>
      </div>
    );
  return (
    <>
      <div class="row">
        <button type="button" class="btn" onClick={() => void copy()}>
          <LinkIcon />
          {copied ? "Copied" : "Copy the address of these panels"}
        </button>
      </div>
      <Grid panels={panels} catalogue={catalogue} owned />
    </>
  );
}
