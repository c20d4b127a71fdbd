import { useState } from "preact/hooks";
import type { MetricInfo } from "../../api/types.ts";
import { href, setParams, useParam } from "../../app/router.ts";
import { boards } from "../../lib/boards.ts";
import { decodePanels, encodePanels, type Panel } from "../../lib/panels.ts";
import { Empty, Segments, writeClipboard } from "../../ui/basics.tsx";
import { ChevronLeft, ChevronRight, LinkIcon, PlusIcon, TrashIcon } from "../../ui/icons.tsx";
import { PanelCard } from "../../ui/panel.tsx";
import { addPanels, movePanel, removePanel, savedPanels } from "./saved.ts";

const mine = "mine";
const choices = [...boards.map((board) => [board.id, board.title] as const), [mine, "My panels"] as const];

export function Boards({ catalogue, shared }: { catalogue: MetricInfo[] | undefined; shared: string }) {
  const [chosen, choose] = useParam("board", shared ? mine : boards[0]!.id);
  const board = boards.find((candidate) => candidate.id === chosen);
  return (
    <>
      <div class="scroll-x">
        <Segments label="Board" value={board?.id ?? mine} options={choices} onChange={choose} />
      </div>
      {board ? (
        <Grid panels={board.panels} catalogue={catalogue} />
      ) : (
        <Mine catalogue={catalogue} shared={decodePanels(shared)} />
      )}
    </>
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
