import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

const root = fileURLToPath(new URL("..", import.meta.url));

it.skipIf(!existsSync(`${root}/dist.sha256`))("the committed archive is as new as the sources", () => {
  expect(() =>
    execFileSync(process.execPath, ["tools/pack.mjs", "--check"], { cwd: root, stdio: "pipe" }),
  ).not.toThrow();
});
