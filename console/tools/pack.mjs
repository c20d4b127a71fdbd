// Packs dist/ into dist.tar.gz, the same bytes for the same files on every machine, and writes dist.sha256:
//     <SHA-256 of dist.tar.gz>  dist.tar.gz
//     <SHA-256 of the sources>  sources
// A machine without Node.js builds the server from the archive. The hash of the sources tells whether it is stale:
//     node tools/pack.mjs --check       (needs neither npm packages nor dist/)

import { createHash } from "node:crypto";
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { gzip } from "./compress.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
// What the built files depend on. Tests and the mock do not reach them.
const sources = ["index.html", "package-lock.json", "package.json", "public", "src", "tsconfig.json", "vite.config.ts"];

const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");

function filesBelow(path) {
  if (statSync(path).isFile()) return [path];
  return readdirSync(path)
    .sort()
    .flatMap((name) => filesBelow(join(path, name)));
}

/** The hash over names and contents, in the order of names. Tests are left out. */
function hashOfSources() {
  const hash = createHash("sha256");
  const files = sources.flatMap((name) => filesBelow(join(root, name)));
  for (const file of files.map((path) => relative(root, path).split(sep).join("/")).sort()) {
    if (file.endsWith(".test.ts")) continue;
    hash.update(`${file}\0${sha256(readFileSync(join(root, file)))}\n`);
  }
  return hash.digest("hex");
}

/** A header of the ustar format without time, owner or device: nothing that differs between machines. */
function header(name, size) {
  const block = Buffer.alloc(512);
  if (Buffer.byteLength(name) > 100) throw new Error(`${name} is too long for the archive`);
  block.write(name, 0);
  block.write("0000644\0", 100);
  block.write("0000000\0", 108);
  block.write("0000000\0", 116);
  block.write(`${size.toString(8).padStart(11, "0")}\0`, 124);
  block.write("00000000000\0", 136);
  block.write("        ", 148);
  block.write("0", 156);
  block.write("ustar\x0000", 257, "latin1");
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return block;
}

function archive() {
  const dist = join(root, "dist");
  const parts = [];
  for (const file of filesBelow(dist)) {
    const bytes = readFileSync(file);
    const name = `dist/${relative(dist, file).split(sep).join("/")}`;
    parts.push(header(name, bytes.length), bytes, Buffer.alloc((512 - (bytes.length % 512)) % 512));
  }
  parts.push(Buffer.alloc(1024));
  return gzip(Buffer.concat(parts));
}

function readHashes() {
  const lines = readFileSync(join(root, "dist.sha256"), "utf8").trim().split("\n");
  return Object.fromEntries(lines.map((line) => line.split(/\s+/).reverse()));
}

if (process.argv.includes("--check")) {
  const expected = readHashes();
  const problems = [];
  if (expected["dist.tar.gz"] !== sha256(readFileSync(join(root, "dist.tar.gz"))))
    problems.push("console/dist.tar.gz is not the archive that console/dist.sha256 names");
  if (expected.sources !== hashOfSources())
    problems.push(
      "console/dist.tar.gz is older than the sources of the console: run `npm ci && npm run pack` in console/ and commit both files",
    );
  for (const problem of problems) console.error(problem);
  process.exitCode = problems.length ? 1 : 0;
} else {
  const packed = archive();
  writeFileSync(join(root, "dist.tar.gz"), packed);
  writeFileSync(join(root, "dist.sha256"), `${sha256(packed)}  dist.tar.gz\n${hashOfSources()}  sources\n`);
  console.log(`dist.tar.gz: ${packed.length} bytes`);
}
