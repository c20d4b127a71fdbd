// The colours of a canvas, from the style sheet's, so that both change together.

export interface Ink {
  readonly surface: string;
  readonly surface2: string;
  readonly surface3: string;
  readonly line: string;
  readonly lineStrong: string;
  readonly grid: string;
  readonly text: string;
  readonly text2: string;
  readonly text3: string;
  readonly accent: string;
  readonly accentSoft: string;
  readonly bad: string;
  readonly warn: string;
  readonly mark: string;
  readonly font: string;
  readonly fontStrong: string;
  readonly fontSmall: string;
}

/** Reads the colours that hold now. Read them again when the theme changes. */
export function readInk(element: Element = document.documentElement): Ink {
  const style = getComputedStyle(element);
  const token = (name: string) => style.getPropertyValue(name).trim();
  const family = token("--sans") || "sans-serif";
  return {
    surface: token("--surface"),
    surface2: token("--surface-2"),
    surface3: token("--surface-3"),
    line: token("--line"),
    lineStrong: token("--line-strong"),
    grid: token("--grid"),
    text: token("--text"),
    text2: token("--text-2"),
    text3: token("--text-3"),
    accent: token("--accent"),
    accentSoft: token("--accent-soft"),
    bad: token("--bad"),
    warn: token("--warn"),
    mark: token("--mark"),
    font: `12.5px ${family}`,
    fontStrong: `600 12.5px ${family}`,
    fontSmall: `11px ${family}`,
  };
}
