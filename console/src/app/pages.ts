// The pages: where they are, what they are called, and the code that draws them, which is loaded when it is needed.

import type { ComponentType } from "preact";
import {
  LogsIcon,
  MetricsIcon,
  OverviewIcon,
  PlaygroundIcon,
  RunsIcon,
  SamplersIcon,
  SystemIcon,
  TenantsIcon,
  TracesIcon,
} from "../ui/icons.tsx";

export type PageProps = { params: Record<string, string> };
type Load = () => Promise<{ default: ComponentType<PageProps> }>;

export interface Page {
  pattern: string;
  title: string;
  load: Load;
  /** Whether the time range and the live switch mean something here. */
  range?: boolean;
  live?: boolean;
}

export const pages: Page[] = [
  { pattern: "/", title: "Overview", range: true, live: true, load: () => import("../pages/overview/page.tsx") },
  { pattern: "/traces", title: "Traces", range: true, live: true, load: () => import("../pages/traces/list.tsx") },
  {
    pattern: "/traces/compare/:left/:right",
    title: "Compare traces",
    load: () => import("../pages/traces/compare.tsx"),
  },
  { pattern: "/traces/:id", title: "Trace", load: () => import("../pages/traces/trace.tsx") },
  { pattern: "/logs", title: "Logs", range: true, live: true, load: () => import("../pages/logs/page.tsx") },
  { pattern: "/metrics", title: "Metrics", range: true, live: true, load: () => import("../pages/metrics/page.tsx") },
  { pattern: "/runs", title: "Runs", live: true, load: () => import("../pages/runs/list.tsx") },
  { pattern: "/runs/:id", title: "Run", live: true, load: () => import("../pages/runs/run.tsx") },
  { pattern: "/samplers", title: "Samplers", live: true, load: () => import("../pages/samplers/page.tsx") },
  { pattern: "/playground", title: "Playground", load: () => import("../pages/playground/page.tsx") },
  { pattern: "/tenants", title: "Tenants", range: true, live: true, load: () => import("../pages/tenants/page.tsx") },
  { pattern: "/system", title: "System", range: true, live: true, load: () => import("../pages/system/page.tsx") },
];

export interface NavItem {
  path: string;
  title: string;
  icon: ComponentType;
  /** The second key of the shortcut "g ...". */
  key: string;
}

export const navigation: { title: string; items: NavItem[] }[] = [
  { title: "", items: [{ path: "/", title: "Overview", icon: OverviewIcon, key: "o" }] },
  {
    title: "Telemetry",
    items: [
      { path: "/traces", title: "Traces", icon: TracesIcon, key: "t" },
      { path: "/logs", title: "Logs", icon: LogsIcon, key: "l" },
      { path: "/metrics", title: "Metrics", icon: MetricsIcon, key: "m" },
    ],
  },
  {
    title: "Models",
    items: [
      { path: "/runs", title: "Runs", icon: RunsIcon, key: "r" },
      { path: "/samplers", title: "Samplers", icon: SamplersIcon, key: "s" },
      { path: "/playground", title: "Playground", icon: PlaygroundIcon, key: "p" },
    ],
  },
  {
    title: "Server",
    items: [
      { path: "/tenants", title: "Tenants", icon: TenantsIcon, key: "u" },
      { path: "/system", title: "System", icon: SystemIcon, key: "y" },
    ],
  },
];
