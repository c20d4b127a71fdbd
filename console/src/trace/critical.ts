// The critical path of a trace, as the server names it: which span was responsible for each piece of the root's time.

import type { CriticalPiece } from "./model.ts";
import { NONE, num, type TraceTree } from "./tree.ts";

export interface CriticalPath {
  /** In order of time. Times are relative to the trace's origin. */
  readonly pieces: readonly { readonly span: number; readonly from: number; readonly to: number }[];
  readonly onPath: Uint8Array;
  /** The microseconds of the path that each of its spans is responsible for. */
  readonly share: ReadonlyMap<number, number>;
  readonly total: number;
  piecesOf(span: number): readonly { readonly from: number; readonly to: number }[];
}

export function readCriticalPath(tree: TraceTree, pieces: readonly CriticalPiece[]): CriticalPath {
  const onPath = new Uint8Array(tree.spans.length);
  const share = new Map<number, number>();
  const bySpan = new Map<number, { from: number; to: number }[]>();
  const known: { span: number; from: number; to: number }[] = [];
  let total = 0;
  for (const piece of pieces) {
    const span = tree.find(piece.span_id);
    if (span === NONE) continue;
    // The server's times are of the clock of that span's process.
    const from = piece.start - tree.origin + num(tree.shift, span);
    const place = { span, from, to: from + piece.duration };
    known.push(place);
    onPath[span] = 1;
    share.set(span, (share.get(span) ?? 0) + piece.duration);
    total += piece.duration;
    const list = bySpan.get(span);
    if (list) list.push(place);
    else bySpan.set(span, [place]);
  }
  known.sort((a, b) => a.from - b.from);
  return { pieces: known, onPath, share, total, piecesOf: (span) => bySpan.get(span) ?? [] };
}

/**
 * The span of the critical path that follows (`step` 1) or precedes (-1) the selected one. From a span that is not on
 * the path, the piece at its start decides. NONE without a path.
 */
export function nextCritical(tree: TraceTree, path: CriticalPath, from: number, step: 1 | -1): number {
  const pieces = path.pieces;
  if (pieces.length === 0) return NONE;
  const spanAt = (k: number) => (pieces[k] as { span: number }).span;
  if (from === NONE) return spanAt(step === 1 ? 0 : pieces.length - 1);
  const place = step === 1 ? findLast(pieces, from) : pieces.findIndex((piece) => piece.span === from);
  if (place >= 0) {
    for (let k = place + step; k >= 0 && k < pieces.length; k += step) {
      if (spanAt(k) !== from) return spanAt(k);
    }
    return from;
  }
  const time = num(tree.start, from);
  const after = pieces.findIndex((piece) => piece.to > time);
  if (after < 0) return spanAt(pieces.length - 1);
  return spanAt(step === 1 ? after : Math.max(0, after - 1));
}

function findLast(pieces: CriticalPath["pieces"], span: number): number {
  for (let k = pieces.length - 1; k >= 0; --k) {
    if (pieces[k]?.span === span) return k;
  }
  return -1;
}
