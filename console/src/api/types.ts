// The answers of /api/v1/observe. Times are microseconds since the epoch, durations microseconds, unless a name ends
// in _seconds or seconds; null is a value that is not known.

export type Micros = number;

export interface WhoAmI {
  user: string;
  operator: boolean;
  version: string;
  store: boolean;
  console: boolean;
  server_time: Micros;
}

export interface TraceSummary {
  trace_id: string;
  root: { name: string; service: string; span_id: string };
  start: Micros;
  duration: Micros;
  spans: number;
  failed_spans: number;
  user: string | null;
  session: string | null;
  run: string | null;
  sampler: string | null;
  request: string | null;
  operation: string | null;
  base_model: string | null;
  match: { span_id: string; name: string; duration: Micros } | null;
}
export interface TracePage {
  traces: TraceSummary[];
  next: string | null;
}

export interface DurationHistogram {
  bounds: Micros[];
  counts: number[];
  failed: number[];
}

export interface SpanSeries {
  start: Micros;
  step: Micros;
  series: { key: string; points: (number | null)[] }[];
}

export type AttributeValue = string | number | boolean | null | AttributeValue[] | { [key: string]: AttributeValue };
export type Attributes = Record<string, AttributeValue>;

export interface Span {
  span_id: string;
  parent_id: string | null;
  name: string;
  service: string;
  worker: string;
  scope: string;
  user: string | null;
  kind: "server" | "internal" | "client" | "producer" | "consumer";
  start: Micros;
  duration: Micros;
  failed: boolean;
  status_message: string;
  attributes: Attributes;
  events: { time: Micros; name: string; attributes: Attributes }[];
  links: { trace_id: string; span_id: string; attributes: Attributes }[];
}

export type ExplanationKind =
  | "queue_own"
  | "queue_others"
  | "sequence"
  | "prefill"
  | "decode"
  | "forward"
  | "backward"
  | "optimizer"
  | "schedule"
  | "store"
  | "network"
  | "save"
  | "paging"
  | "server"
  | "other";
export interface ExplanationPart {
  kind: ExplanationKind;
  seconds: number;
  share: number;
  text: string;
  span_id: string | null;
}
export interface Explanation {
  summary: string;
  parts: ExplanationPart[];
}

export interface Trace {
  trace_id: string;
  start: Micros;
  duration: Micros;
  truncated: boolean;
  spans: Span[];
  logs: LogRecord[];
  linked_from: { trace_id: string; span_id: string; name: string; to_span_id: string }[];
  critical_path: { span_id: string; start: Micros; duration: Micros }[];
  explanation: Explanation | null;
}

export type Level = "debug" | "info" | "warning" | "error";
export interface LogRecord {
  time: Micros;
  level: Level;
  event: string;
  body: string;
  service: string;
  worker: string;
  scope: string;
  user: string | null;
  trace_id: string | null;
  span_id: string | null;
  attributes: Attributes;
}
export interface LogPage {
  logs: LogRecord[];
  next: string | null;
  newest: string | null;
}

export type MetricType = "counter" | "updowncounter" | "gauge" | "histogram";
export interface MetricInfo {
  name: string;
  prometheus_name: string;
  type: MetricType;
  unit: string;
  description: string;
  labels: Record<string, string[]>;
}
export interface MetricCatalogue {
  metrics: MetricInfo[];
}
export type MetricFunction =
  | "rate"
  | "increase"
  | "last"
  | "mean"
  | "max"
  | "mean_value"
  | "p50"
  | "p90"
  | "p95"
  | "p99";
export interface MetricAnswer {
  name: string;
  unit: string;
  type: MetricType;
  fn: MetricFunction;
  start: Micros;
  step: Micros;
  truncated: boolean;
  series: { labels: Record<string, string>; points: (number | null)[] }[];
}
export interface Exemplar {
  time: Micros;
  value: number;
  trace_id: string;
  span_id: string;
  labels: Record<string, string>;
}
export interface Exemplars {
  exemplars: Exemplar[];
}

/** Of a worker; that of a model is the state of its worker that can do most. docs/scaling.md has the meanings. */
export type WorkerState = "absent" | "standby" | "starting" | "ready" | "silent" | "draining" | "dead";
export interface ModelStatus {
  base_model: string;
  state: WorkerState;
  incarnation: number;
  training: boolean;
  sampling: boolean;
  queue: { training: number; sampling: number };
  /** The newest optimizer step of any run; a model that only samples makes none. */
  last_step: Micros | null;
  why_waiting: string | null;
}
export interface Overview {
  server_time: Micros;
  version: string;
  started: Micros;
  ready: boolean;
  reason: string | null;
  models: ModelStatus[];
  sessions: number;
  runs: number;
  samplers: number;
  pending: number;
  users_active: number | null;
}

export interface Run {
  run: string;
  session: string;
  user: string;
  base_model: string;
  lora_rank: number | null;
  optimizer: string | null;
  created: Micros;
  last_active: Micros | null;
  alive: boolean;
  corrupted: boolean;
  steps: number;
  loss: number | null;
  grad_norm: number | null;
  learning_rate: number | null;
  tokens_per_second: number | null;
}
export interface RunPage {
  runs: Run[];
  next: string | null;
}
export interface Checkpoint {
  checkpoint_id: string;
  kind: "training" | "sampler" | "external";
  tinker_path: string;
  size_bytes: number | null;
  created: Micros;
  expires: Micros | null;
  public: boolean;
  owner: string;
}
export interface TimePart {
  kind: "passes" | "optimizer" | "waiting" | "saving" | "idle";
  seconds: number;
  share: number;
}
export interface RunDetail extends Run {
  checkpoints: Checkpoint[];
  time: { window_seconds: number; parts: TimePart[] };
  advice: string[];
  operations: { operation: string; count: number; p50: Micros | null; p95: Micros | null; failed: number }[];
}
export interface RunStep {
  step: number;
  time: Micros;
  loss: number | null;
  grad_norm: number | null;
  learning_rate: number | null;
  tokens: number;
  seconds: number;
  pass_seconds: number;
  step_seconds: number;
  wait_seconds: number;
  save_seconds: number;
  idle_seconds: number;
  clipped: boolean;
}
export interface RunSteps {
  steps: RunStep[];
}

export interface Sampler {
  sampler: string;
  session: string;
  user: string;
  base_model: string;
  model_path: string | null;
  created: Micros | null;
  last_active: Micros | null;
  requests: number | null;
  follows_run: string | null;
}
export interface SamplerPage {
  samplers: Sampler[];
  next: string | null;
}

export interface Tenant {
  user: string;
  sessions: number;
  runs: number;
  samplers: number;
  pending: number;
  queued_bytes: number;
  checkpoint_bytes: number;
  tokens: { train: number; input: number; output: number };
  engine_share: number | null;
  quotas: { limit: string; used: number; max: number | null }[];
}
export interface Tenants {
  tenants: Tenant[];
}

export interface Session {
  session: string;
  user: string;
  created: Micros;
  last_heartbeat: Micros | null;
  display_name: string | null;
  project: string | null;
  sdk_version: string | null;
  alive: boolean;
  runs: number;
  samplers: number;
  busy_share: number | null;
  concurrency: number | null;
}
export interface SessionPage {
  sessions: Session[];
  next: string | null;
}

export interface StoreState {
  on_disk: boolean;
  problem: string | null;
  disk_bytes: number;
  disk_bytes_max: number;
  memory_bytes: number;
  spans: number;
  logs: number;
  series: number;
  steps: number;
  oldest: Micros | null;
  dropped_records: number;
}
export interface Worker {
  /** Of several workers of a base model, each has its number: "m#2". */
  base_model: string;
  state: WorkerState;
  incarnation: number;
  pid: number | null;
  threads: number | null;
  device: string | null;
  metrics: Record<string, number>;
}
export interface System {
  version: string;
  build?: Record<string, string | number | boolean | null> | null;
  started: Micros | null;
  host?: Record<string, string | number | boolean | null> | null;
  config: string | null;
  workers?: Worker[] | null;
  telemetry: {
    store: StoreState | null;
    export?: {
      enabled: boolean;
      signals: (string | { signal: string; protocol?: string; endpoint?: string })[];
    } | null;
  };
  limits: Record<string, number | string | boolean | null>;
}
