// What the layouts know of a trace: the shapes of `GET /api/v1/observe/traces/{trace_id}`.
//
// Times are microseconds since the epoch and durations are microseconds, as in the API.

export type Attributes = Readonly<Record<string, unknown>>;

export interface SpanEvent {
  readonly time: number;
  readonly name: string;
  readonly attributes: Attributes;
}

export interface SpanLink {
  readonly trace_id: string;
  readonly span_id: string;
  readonly attributes: Attributes;
}

export interface TraceSpan {
  readonly span_id: string;
  readonly parent_id: string | null;
  readonly name: string;
  readonly service: string;
  readonly worker: string;
  readonly scope: string;
  readonly user: string | null;
  readonly kind: string;
  readonly start: number;
  readonly duration: number;
  readonly failed: boolean;
  readonly status_message: string;
  readonly attributes: Attributes;
  readonly events: readonly SpanEvent[];
  readonly links: readonly SpanLink[];
}

export interface CriticalPiece {
  readonly span_id: string;
  readonly start: number;
  readonly duration: number;
}
