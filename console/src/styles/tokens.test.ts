import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

const sheet = readFileSync(new URL("./tokens.css", import.meta.url), "utf8");

function block(start: string): Record<string, string> {
  const from = sheet.indexOf("{", sheet.indexOf(start));
  const body = sheet.slice(from, sheet.indexOf("}", from));
  return Object.fromEntries([...body.matchAll(/(--[\w-]+):\s*(#[0-9a-f]{6})/g)].map((match) => [match[1]!, match[2]!]));
}

const light = block(":root {");
const dark = block('[data-theme="dark"] {');
const system = block(':root:not([data-theme="light"]) {');

type Rgb = [number, number, number];
const linear = (hex: string): Rgb =>
  [1, 3, 5].map((at) => {
    const value = Number.parseInt(hex.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  }) as Rgb;
const luminance = ([r, g, b]: Rgb) => 0.2126 * r + 0.7152 * g + 0.0722 * b;
function contrast(a: string, b: string): number {
  const [high, low] = [luminance(linear(a)), luminance(linear(b))].sort((x, y) => y - x) as [number, number];
  return (high + 0.05) / (low + 0.05);
}

// Machado, Oliveira and Fernandes (2009), severity 1.
const deficiencies: Record<string, number[][]> = {
  none: [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  protanopia: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  deuteranopia: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  tritanopia: [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039],
  ],
};

function lab([r, g, b]: Rgb): Rgb {
  const f = (value: number) => (value > 0.008856 ? Math.cbrt(value) : 7.787 * value + 16 / 116);
  const x = f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505);
  const y = f(0.2126 * r + 0.7152 * g + 0.0722 * b);
  const z = f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089);
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

function seen(hex: string, matrix: number[][]): Rgb {
  const rgb = linear(hex);
  return lab(
    matrix.map((row) =>
      Math.min(
        1,
        Math.max(
          0,
          row.reduce((sum, factor, i) => sum + factor * rgb[i]!, 0),
        ),
      ),
    ) as Rgb,
  );
}
const distance = (a: Rgb, b: Rgb) => Math.hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);

describe.each([
  ["light", light],
  ["dark", dark],
])("the %s palette", (_, colors) => {
  const surfaces = ["--bg", "--surface", "--surface-2"];
  it("has texts of AA contrast", () => {
    for (const text of ["--text", "--text-2", "--text-3", "--accent"])
      for (const surface of surfaces)
        expect(contrast(colors[text]!, colors[surface]!), `${text} on ${surface}`).toBeGreaterThanOrEqual(4.5);
    for (const tone of ["ok", "warn", "bad", "accent"])
      expect(contrast(colors[`--${tone}`]!, colors[`--${tone}-soft`]!), tone).toBeGreaterThanOrEqual(4.5);
    for (const tone of ["ok", "warn", "bad"])
      expect(contrast(colors[`--${tone}`]!, colors["--surface"]!), tone).toBeGreaterThanOrEqual(4.5);
    expect(contrast(colors["--on-accent"]!, colors["--accent"]!)).toBeGreaterThanOrEqual(4.5);
    expect(contrast(colors["--text-2"]!, colors["--surface-3"]!)).toBeGreaterThanOrEqual(4.5);
    expect(contrast(colors["--text"]!, colors["--mark"]!)).toBeGreaterThanOrEqual(4.5);
    expect(contrast(colors["--text-2"]!, colors["--accent-soft"]!)).toBeGreaterThanOrEqual(4.5);
  });
  it("has series that stand out from the surface", () => {
    for (let i = 1; i <= 8; i++)
      expect(contrast(colors[`--s${i}`]!, colors["--surface"]!), `--s${i}`).toBeGreaterThanOrEqual(3);
  });
  it.each(Object.entries(deficiencies))("has series that differ: %s", (name, matrix) => {
    // The first five are used most and must be told apart at a glance; the others must differ.
    for (let i = 1; i <= 8; i++)
      for (let j = i + 1; j <= 8; j++) {
        const apart = distance(seen(colors[`--s${i}`]!, matrix), seen(colors[`--s${j}`]!, matrix));
        const least = name === "none" ? 20 : j <= 5 ? 11 : 6;
        expect(apart, `--s${i} and --s${j}`).toBeGreaterThanOrEqual(least);
      }
  });
});

it("is the same whether dark is chosen or the system's", () => expect(system).toEqual(dark));
