// Text on a canvas that ends where its room ends.

const widths = new Map<string, number>();
const WIDTHS_MAX = 20_000;

/** The width of a text in the context's font, measured once. */
export function textWidth(ctx: CanvasRenderingContext2D, text: string): number {
  const key = `${ctx.font}\n${text}`;
  let width = widths.get(key);
  if (width === undefined) {
    if (widths.size >= WIDTHS_MAX) widths.clear();
    width = ctx.measureText(text).width;
    widths.set(key, width);
  }
  return width;
}

/** The text, or its beginning and an ellipsis, in at most `room` pixels; "" if not even a letter fits. */
export function clipText(ctx: CanvasRenderingContext2D, text: string, room: number): string {
  if (room <= 0) return "";
  if (textWidth(ctx, text) <= room) return text;
  let low = 0;
  let high = Math.min(text.length, Math.ceil(room / 2));
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (textWidth(ctx, `${text.slice(0, middle)}…`) <= room) low = middle;
    else high = middle - 1;
  }
  return low === 0 ? "" : `${text.slice(0, low)}…`;
}
