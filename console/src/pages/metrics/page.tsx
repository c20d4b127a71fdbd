// Every metric with what it means: boards of panels, and one metric examined.

import { useState } from "preact/hooks";
import { observe, who } from "../../api/client.ts";
import type { MetricCatalogue } from "../../api/types.ts";
import { useApi } from "../../api/use_api.ts";
import { setParams, useParam } from "../../app/router.ts";
import { ErrorBox, Link, Skeleton } from "../../ui/basics.tsx";
import { Boards } from "./boards.tsx";
import { Catalogue } from "./catalogue.tsx";
import { Explore } from "./explore.tsx";

export default function Page() {
  const [metric] = useParam("metric");
  const [view] = useParam("view");
  const [panels] = useParam("panels");
  const catalogue = useApi<MetricCatalogue>(observe("/metrics"), { every: 60_000 });
  const [wide, setWide] = useState(false);
  const exploring = Boolean(metric) || view === "catalogue";

  return (
    <>
      <nav class="tabs" aria-label="Metrics">
        <Link to="/metrics" class="tab" aria-current={exploring ? undefined : "page"}>
          Panels
        </Link>
        <Link to="/metrics" params={{ view: "catalogue" }} class="tab" aria-current={exploring ? "page" : undefined}>
          All metrics
        </Link>
      </nav>
      {!who.value?.operator && (
        <p class="muted">
          You see the series that carry your name; metrics of the whole server are the operator's. Rates and latencies
          of your own requests are on the <Link to="/traces">traces</Link> page.
        </p>
      )}
      {catalogue.error && !catalogue.data && <ErrorBox error={catalogue.error} retry={catalogue.reload} />}
      {!exploring ? (
        <Boards catalogue={catalogue.data?.metrics} shared={panels} />
      ) : !catalogue.data ? (
        !catalogue.error && <Skeleton height={400} />
      ) : (
        <div class={wide || !metric ? "explore alone" : "explore"}>
          {!wide && (
            <div class={metric ? "hide-phone" : ""}>
              <Catalogue
                metrics={catalogue.data.metrics}
                selected={metric}
                onSelect={(name) =>
                  setParams({ view: "catalogue", metric: name, fn: null, by: null, where: null, kind: null })
                }
              />
            </div>
          )}
          {metric && <Explore name={metric} metrics={catalogue.data.metrics} wide={wide} setWide={setWide} />}
        </div>
      )}
    </>
  );
}
