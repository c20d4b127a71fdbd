// The list of all metrics, searched by name and description.

import { useMemo } from "preact/hooks";
import type { MetricInfo } from "../../api/types.ts";
import { useParam } from "../../app/router.ts";
import { unitWord } from "../../lib/units.ts";
import { Badge, classes, Empty } from "../../ui/basics.tsx";
import { SearchIcon } from "../../ui/icons.tsx";

/** The words of a search, each of which the name, the unit or the description must contain. */
export function searchMetrics(metrics: MetricInfo[], text: string): MetricInfo[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return metrics.filter((metric) => {
    const body =
      `${metric.name} ${metric.prometheus_name} ${metric.type} ${metric.unit} ${metric.description}`.toLowerCase();
    return words.every((word) => body.includes(word));
  });
}

/** "tuft.training.loss" -> "tuft.training"; names without a dot are Transformers'. */
export function areaOf(name: string): string {
  const parts = name.split(".");
  if (parts.length === 1) return "continuous batching";
  return parts[0] === "tuft" || parts[0] === "otel" ? parts.slice(0, 2).join(".") : parts[0]!;
}

interface CatalogueProps {
  metrics: MetricInfo[];
  selected: string;
  onSelect: (name: string) => void;
}

export function Catalogue({ metrics, selected, onSelect }: CatalogueProps) {
  const [text, setText] = useParam("q");
  const areas = useMemo(() => {
    const found = new Map<string, MetricInfo[]>();
    for (const metric of searchMetrics(metrics, text).sort((a, b) => a.name.localeCompare(b.name))) {
      const area = areaOf(metric.name);
      found.set(area, [...(found.get(area) ?? []), metric]);
    }
    return [...found];
  }, [metrics, text]);
  return (
    <section class={classes("card catalogue", !selected && "open")} aria-label="Catalogue of metrics">
      <div class="filter catalogue-search">
        <SearchIcon />
        <input
          type="search"
          value={text}
          placeholder={`Search ${metrics.length} metrics`}
          aria-label="Search the metrics"
          data-keys="search"
          onInput={(event) => setText(event.currentTarget.value)}
        />
      </div>
      <div class="catalogue-list" tabIndex={0} role="region" aria-label="Metrics">
        {areas.length === 0 && (
          <Empty title={metrics.length ? "No metric matches" : "No metric has been recorded yet"}>
            {metrics.length > 0 && <p>Names, units and descriptions are searched, for example “queue seconds”.</p>}
          </Empty>
        )}
        {areas.map(([area, list]) => (
          <div key={area}>
            <h2 class="catalogue-area">{area}</h2>
            <ul>
              {list.map((metric) => (
                <li key={metric.name}>
                  <button
                    type="button"
                    class={classes("catalogue-item", metric.name === selected && "active")}
                    aria-current={metric.name === selected ? "true" : undefined}
                    onClick={() => onSelect(metric.name)}
                  >
                    <span class="row tight">
                      <span class="mono clip grow">{metric.name}</span>
                      {!selected && <span class="muted hide-phone">{unitWord(metric.unit) || metric.unit}</span>}
                      <Badge>{metric.type}</Badge>
                    </span>
                    <span class={classes("muted", selected && "clip")}>{metric.description}</span>
                  </button>
                </li>
              ))}
            </ul>
          </div>
        ))}
      </div>
    </section>
  );
}
