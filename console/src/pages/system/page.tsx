// The machinery: workers and what they hold, what was shared in the last passes, configuration, versions, the bundle.

import { useState } from "preact/hooks";
import { observe, request, who } from "../../api/client.ts";
import type { System } from "../../api/types.ts";
import { useApi } from "../../api/use_api.ts";
import { useChoice, useParam } from "../../app/router.ts";
import { formatBytes, formatNumber } from "../../lib/units.ts";
import { Card, Copy, Empty, ErrorBox, Facts, Skeleton, Time, writeClipboard } from "../../ui/basics.tsx";
import { DownloadIcon, SearchIcon } from "../../ui/icons.tsx";
import { Tabs } from "../../ui/overlays.tsx";
import { TelemetryHealth } from "../overview/lists.tsx";
import { SharedPasses } from "./passes.tsx";
import { Workers } from "./workers.tsx";

const tabs = ["workers", "passes", "configuration", "limits", "versions"] as const;

export default function Page() {
  const { data, error, reload } = useApi<System>(observe("/system"), { every: 3000 });
  const [tab, setTab] = useChoice("tab", tabs, "workers");
  const operator = who.value?.operator ?? false;
  if (!data) return error ? <ErrorBox error={error} retry={reload} /> : <Skeleton height={300} />;
  const shown = operator ? tabs : (["limits", "versions"] as const);
  const current = (shown as readonly string[]).includes(tab) ? tab : shown[0]!;
  const names = {
    workers: "Workers",
    passes: "Shared passes",
    configuration: "Configuration",
    limits: "Limits",
    versions: "Versions and telemetry",
  };
  return (
    <>
      {error && <ErrorBox error={`These are the last known values. ${error.message}`} retry={reload} />}
      <div class="row spread">
        <p class="muted">
          tuft {data.version}
          {data.started !== null && (
            <>
              , started <Time at={data.started} />
            </>
          )}
          {operator ? "" : ". Workers and configuration are shown to operators (console.operators)."}
        </p>
        {operator && <Bundle />}
      </div>
      <Tabs label="System" value={current} tabs={shown.map((one) => [one, names[one]] as const)} onChange={setTab}>
        {current === "workers" && <Workers workers={data.workers ?? []} />}
        {current === "passes" && <SharedPasses />}
        {current === "configuration" && <Configuration text={data.config} />}
        {current === "limits" && <Limits limits={data.limits} />}
        {current === "versions" && <Versions system={data} />}
      </Tabs>
    </>
  );
}

/** The bundle needs the console's header: it is fetched, then handed to the browser as a file. */
function Bundle() {
  const [state, setState] = useState<"" | "busy" | "done">("");
  const [error, setError] = useState("");
  const fetchBundle = async () => {
    setState("busy");
    setError("");
    try {
      const blob = await (await request(observe("/bundle"))).blob();
      const link = document.createElement("a");
      link.href = URL.createObjectURL(blob);
      link.download = `tuft-bundle-${new Date().toISOString().slice(0, 19).replace(/[:T]/g, "-")}.tar.gz`;
      link.click();
      URL.revokeObjectURL(link.href);
      setState("done");
    } catch (failure) {
      setError((failure as Error).message);
      setState("");
    }
  };
  return (
    <div class="row">
      {error && <ErrorBox error={error} />}
      <button
        type="button"
        class="btn"
        disabled={state === "busy"}
        onClick={() => void fetchBundle()}
        title="State, metrics, log and slow traces for a bug report. No key, prompt or token is in it."
      >
        <DownloadIcon />
        {state === "busy" ? "Collecting …" : "Diagnostic bundle"}
      </button>
    </div>
  );
}

function Configuration({ text }: { text: string | null }) {
  const [search, setSearch] = useParam("q");
  const [copied, setCopied] = useState(false);
  if (!text)
    return (
      <Empty title="The configuration is not told">
        <p>The server was started without a file; the values in force are the defaults of docs/configuration.md.</p>
      </Empty>
    );
  const lines = text.split("\n");
  const needle = search.toLowerCase();
  return (
    <Card label="Configuration">
      <div class="row config-head">
        <div class="filter">
          <SearchIcon />
          <input
            type="search"
            value={search}
            placeholder="Search the configuration"
            aria-label="Search the configuration"
            data-keys="search"
            onInput={(event) => setSearch(event.currentTarget.value)}
          />
        </div>
        <button
          type="button"
          class="btn"
          onClick={async () => {
            setCopied(await writeClipboard(text));
            setTimeout(() => setCopied(false), 1200);
          }}
        >
          {copied ? "Copied" : "Copy"}
        </button>
        <span class="muted">Secrets are shown as ***.</span>
      </div>
      <pre class="config" tabIndex={0} aria-label="Configuration as YAML">
        {lines.map((line, i) => (
          <div key={i} class={needle && line.toLowerCase().includes(needle) ? "config-line found" : "config-line"}>
            <span class="config-number" aria-hidden="true">
              {i + 1}
            </span>
            <YamlLine line={line} />
          </div>
        ))}
      </pre>
    </Card>
  );
}

function YamlLine({ line }: { line: string }) {
  if (/^\s*#/.test(line)) return <span class="yaml-comment">{line}</span>;
  const match = /^(\s*(?:- )?)([^:#]+:)(.*)$/.exec(line);
  if (!match) return <span>{line || " "}</span>;
  return (
    <span>
      {match[1]}
      <span class="yaml-key">{match[2]}</span>
      {match[3]}
    </span>
  );
}

function Limits({ limits }: { limits: System["limits"] }) {
  const rows = Object.entries(limits);
  if (!rows.length) return <Empty title="The server tells no limits" />;
  const show = (key: string, value: number | string | boolean | null) =>
    typeof value !== "number"
      ? String(value ?? "none")
      : /bytes/.test(key)
        ? `${formatBytes(value)}`
        : formatNumber(value);
  return (
    <Card label="Limits">
      <p class="muted">
        At a limit the answer is an error that names its key. An operator changes it in the configuration.
      </p>
      <div class="facts-wide">
        <Facts items={rows.map(([key, value]) => [key, <code key={key}>{show(key, value)}</code>])} />
      </div>
    </Card>
  );
}

type Told = Record<string, string | number | boolean | null>;

function factsOf(facts: Told | null | undefined): [string, string][] {
  return Object.entries(facts ?? {})
    .filter(([, value]) => value !== null && value !== "")
    .map(([key, value]) => [
      key.replaceAll("_", " "),
      typeof value === "number" && /bytes/.test(key) ? formatBytes(value) : String(value),
    ]);
}

function Versions({ system }: { system: System }) {
  return (
    <div class="grid-2">
      <Card title="Build">
        <Facts
          items={[["Version", <Copy key="version" text={system.version} label="version" />], ...factsOf(system.build)]}
        />
      </Card>
      {system.host && (
        <Card title="Machine">
          <Facts items={factsOf(system.host)} />
        </Card>
      )}
      <Card title="Telemetry">
        <TelemetryHealth system={system} />
      </Card>
    </div>
  );
}
