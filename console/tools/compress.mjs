// Writes a .gz beside each file of dist/ that gets smaller by it: the server sends these to browsers that accept them.

import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

/** Without time and operating system: the same bytes at each call. */
export function gzip(bytes) {
  const packed = gzipSync(bytes, { level: 9 });
  packed.fill(0, 4, 8);
  packed[9] = 255;
  return packed;
}

function compressBelow(path) {
  let total = 0;
  for (const name of readdirSync(path)) {
    const file = join(path, name);
    if (statSync(file).isDirectory()) total += compressBelow(file);
    else if (!name.endsWith(".gz")) {
      const bytes = readFileSync(file);
      const packed = gzip(bytes);
      if (packed.length < bytes.length) writeFileSync(`${file}.gz`, packed);
      total += Math.min(packed.length, bytes.length);
    }
  }
  return total;
}

const budget = 300_000;

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const total = compressBelow(fileURLToPath(new URL("../dist", import.meta.url)));
  console.log(`the console is ${total} bytes compressed; at most ${budget} are allowed`);
  if (total > budget) process.exitCode = 1;
}
