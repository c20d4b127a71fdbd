// The checkpoints of a run, and what can be done with them.

import { useState } from "preact/hooks";
import { getJson, sendJson } from "../../api/client.ts";
import type { Checkpoint } from "../../api/types.ts";
import { formatBytes } from "../../lib/units.ts";
import { Badge, Bytes, Empty, ErrorBox, Link, Time, writeClipboard } from "../../ui/basics.tsx";
import { CheckIcon, CopyIcon, DownloadIcon, PlaygroundIcon, TrashIcon } from "../../ui/icons.tsx";
import { Dialog } from "../../ui/overlays.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { checkpointPath } from "./words.ts";

interface Props {
  run: string;
  checkpoints: Checkpoint[];
  reload: () => void;
}

export function Checkpoints({ run, checkpoints, reload }: Props) {
  const [doomed, setDoomed] = useState<Checkpoint | null>(null);
  const [busy, setBusy] = useState<string | null>(null);
  const [failure, setFailure] = useState<Error | null>(null);

  const act = async (checkpoint: Checkpoint, action: () => Promise<unknown>) => {
    setBusy(checkpoint.checkpoint_id);
    setFailure(null);
    try {
      await action();
      reload();
    } catch (error) {
      setFailure(error as Error);
    } finally {
      setBusy(null);
    }
  };
  const path = (checkpoint: Checkpoint) => checkpointPath(run, checkpoint.checkpoint_id);
  // The server answers with an address that is valid for a while and needs no key.
  const download = (checkpoint: Checkpoint) =>
    act(checkpoint, async () => {
      const { url } = await getJson<{ url: string }>(`${path(checkpoint)}/archive`);
      const anchor = document.createElement("a");
      anchor.href = new URL(url, location.origin).pathname + new URL(url, location.origin).search;
      anchor.download = `${checkpoint.checkpoint_id.replaceAll("/", "-")}.tar`;
      anchor.click();
    });
  const publish = (checkpoint: Checkpoint) =>
    act(checkpoint, () => sendJson(checkpoint.public ? "DELETE" : "POST", `${path(checkpoint)}/publish`));
  const remove = (checkpoint: Checkpoint) => {
    setDoomed(null);
    void act(checkpoint, () => sendJson("DELETE", path(checkpoint)));
  };

  const total = checkpoints.reduce((sum, one) => sum + (one.size_bytes ?? 0), 0);
  const columns: Column<Checkpoint>[] = [
    {
      key: "name",
      title: "Checkpoint",
      width: "minmax(180px, 1.6fr)",
      sort: (row) => row.checkpoint_id,
      render: (row) => (
        <span class="run-name" title={row.tinker_path}>
          <code class="clip">{row.checkpoint_id}</code>
          <CopyPath path={row.tinker_path} />
        </span>
      ),
    },
    {
      key: "kind",
      title: "Kind",
      width: "92px",
      wide: true,
      sort: (row) => row.kind,
      render: (row) => <Badge tone={row.kind === "sampler" ? "accent" : "none"}>{row.kind}</Badge>,
    },
    {
      key: "size",
      title: "Size",
      width: "90px",
      right: true,
      sort: (row) => row.size_bytes,
      render: (row) => <Bytes value={row.size_bytes} />,
    },
    {
      key: "created",
      title: "Created",
      width: "100px",
      wide: true,
      sort: (row) => row.created,
      render: (row) => <Time at={row.created} />,
    },
    {
      key: "expires",
      title: "Expires",
      width: "100px",
      wide: true,
      sort: (row) => row.expires,
      render: (row) => (row.expires ? <Time at={row.expires} /> : <span class="muted">never</span>),
    },
    {
      key: "owner",
      title: "Owner",
      width: "minmax(60px, 0.6fr)",
      wide: true,
      sort: (row) => row.owner,
      render: (row) => row.owner,
    },
    {
      key: "public",
      title: "Visible to",
      width: "90px",
      wide: true,
      sort: (row) => Number(row.public),
      render: (row) => (row.public ? <Badge tone="warn">everyone</Badge> : "owner"),
    },
    {
      key: "actions",
      title: <span class="visually-hidden">Actions</span>,
      width: "178px",
      right: true,
      render: (row) => (
        <span class="row-actions">
          {row.kind === "sampler" && (
            <Link
              class="btn quiet small icon"
              to="/playground"
              params={{ a: row.tinker_path }}
              aria-label={`Try ${row.checkpoint_id} in the playground`}
              title="Try in the playground"
            >
              <PlaygroundIcon />
            </Link>
          )}
          <button
            type="button"
            class="btn quiet small icon"
            disabled={busy !== null}
            aria-label={`Download ${row.checkpoint_id}`}
            title="Download"
            onClick={() => download(row)}
          >
            <DownloadIcon />
          </button>
          <button
            type="button"
            class="btn quiet small"
            disabled={busy !== null}
            onClick={() => publish(row)}
            title={row.public ? "Only its owner may use it then" : "Every user of the server may use it then"}
          >
            {row.public ? "Unpublish" : "Publish"}
          </button>
          <button
            type="button"
            class="btn quiet small icon danger"
            disabled={busy !== null}
            aria-label={`Delete ${row.checkpoint_id}`}
            title="Delete"
            onClick={() => setDoomed(row)}
          >
            <TrashIcon />
          </button>
        </span>
      ),
    },
  ];
  return (
    <>
      {failure && <ErrorBox error={failure} />}
      <DataTable
        label="Checkpoints"
        rows={checkpoints}
        columns={columns}
        rowKey={(row) => row.checkpoint_id}
        sortParam="checkpoints"
        framed={false}
        empty={
          <Empty title="No checkpoints">
            <p>
              <code>training_client.save_state(name)</code> keeps weights and optimizer to go on from,{" "}
              <code>save_weights_for_sampler(name)</code> keeps weights to sample from.
            </p>
          </Empty>
        }
        foot={
          checkpoints.length
            ? `${checkpoints.length} ${checkpoints.length === 1 ? "checkpoint" : "checkpoints"}, ${formatBytes(total)}`
            : null
        }
      />
      <Dialog open={doomed !== null} onClose={() => setDoomed(null)} title="Delete this checkpoint?">
        <p class="delete-words">
          <code>{doomed?.tinker_path}</code> ({formatBytes(doomed?.size_bytes)}) is removed from the disk. This cannot
          be undone; samplers that use it already keep their weights.
        </p>
        <div class="row delete-buttons">
          <button type="button" class="btn" onClick={() => setDoomed(null)}>
            Keep it
          </button>
          <button type="button" class="btn danger" onClick={() => doomed && remove(doomed)}>
            Delete
          </button>
        </div>
      </Dialog>
    </>
  );
}

function CopyPath({ path }: { path: string }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    if (!(await writeClipboard(path))) return;
    setCopied(true);
    setTimeout(() => setCopied(false), 1200);
  };
  return (
    <button
      type="button"
      class="btn quiet small icon"
      aria-label={`Copy ${path}`}
      title={`Copy ${path}`}
      onClick={copy}
    >
      {copied ? <CheckIcon /> : <CopyIcon />}
    </button>
  );
}
