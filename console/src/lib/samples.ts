// Names of series as Prometheus writes them: name{key="value",key="value"}.

export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

/** Reads a name with its labels; a text that is none has no labels. */
export function parseSample(text: string, value: number): Sample {
  const brace = text.indexOf("{");
  if (brace < 0 || !text.endsWith("}")) return { name: text, labels: {}, value };
  const labels: Record<string, string> = {};
  for (const match of text.slice(brace + 1, -1).matchAll(/([^=,{}"\s]+)="?((?:[^"\\,]|\\.|(?<="[^"]*),)*)"?/g))
    labels[match[1]!] = match[2]!.replace(/\\(.)/g, "$1");
  return { name: text.slice(0, brace), labels, value };
}

/** The samples of a worker, found by name, in dots or as in Prometheus. */
export class Samples {
  private readonly all: Sample[];

  constructor(metrics: Record<string, number>) {
    this.all = Object.entries(metrics).map(([name, value]) => parseSample(name, value));
  }

  list(name: string): Sample[] {
    const other = name.replaceAll(".", "_");
    return this.all.filter(
      (sample) =>
        sample.name === name ||
        sample.name === other ||
        (sample.name.startsWith(`${other}_`) && isUnit(sample.name.slice(other.length + 1))),
    );
  }

  /** The sum of those whose labels match; null: there is none. */
  sum(name: string, where: Record<string, string> = {}): number | null {
    const found = this.list(name).filter((sample) =>
      Object.entries(where).every(([key, value]) => sample.labels[key] === value),
    );
    return found.length ? found.reduce((total, sample) => total + sample.value, 0) : null;
  }
}

const isUnit = (suffix: string) => /^(bytes|seconds|ratio|total|per_second|percent)(_total)?$/.test(suffix);
