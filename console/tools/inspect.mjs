// Visits every page of a served console with Chromium and reports what is wrong: accessibility (axe), the content
// security policy, requests to other hosts, errors of scripts, what is wider than a phone. Ends with 1 if anything is.
//     npm run build && npm run preview &      then: npm run inspect -- [URL ["PAGE PAGE ..."]]

import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const address = process.argv[2] ?? "http://127.0.0.1:5198";
const key = process.env.TUFT_API_KEY ?? "operator";
const axe = readFileSync(new URL("../node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const everything = [
  "/",
  "/traces",
  "/logs?level=debug",
  "/metrics",
  "/metrics?board=mine",
  "/metrics?view=catalogue",
  "/metrics?view=catalogue&metric=tuft.training.step.duration&by=phase&compare=before",
  "/runs",
  "/samplers",
  "/playground",
  "/tenants?user=alice",
  "/system",
  "/system?tab=passes",
  "/system?tab=configuration",
  "/system?tab=limits",
  "/system?tab=versions",
  "/nothing",
];
const pages = process.argv[3]?.split(" ") ?? everything;
const looks = [
  ["light", 1440],
  ["dark", 1440],
  ["light", 375],
];
const quiet = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

const problems = new Set();
const browser = await chromium.launchPersistentContext(mkdtempSync(join(tmpdir(), "inspect-")), {
  executablePath: "/usr/bin/chromium",
  headless: true,
  args: quiet,
});
const page = await browser.newPage();
page.setDefaultTimeout(120_000);
page.on("pageerror", (error) => problems.add(`${page.url()}: ${error}`));
page.on("console", (message) => {
  const text = message.text();
  if (message.type() === "error" && !text.includes("401")) problems.add(`${page.url()}: ${text}`);
});
page.on("request", (request) => {
  if (!request.url().startsWith(address) && !/^(data|blob):/.test(request.url()))
    problems.add(`a request to ${request.url()}`);
});

async function examine(name, width) {
  // Evaluated by the debugger, which the policy of the page does not bind.
  await page.evaluate(axe);
  const violations = await page.evaluate(async () =>
    (await globalThis.axe.run()).violations.map(
      (one) =>
        `${one.id}: ${one.help}: ${one.nodes
          .map((node) => node.target.join(" "))
          .slice(0, 4)
          .join(" | ")}`,
    ),
  );
  for (const violation of violations) problems.add(`${name}: ${violation}`);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (wide > 0) problems.add(`${name}: ${wide} pixels wider than ${width}`);
}

await page.goto(`${address}/console/`);
await page.waitForSelector('input[type="password"], .shell');
if (await page.locator('input[type="password"]').count()) {
  await examine("login", 1280);
  await page.fill('input[type="password"]', key);
  await page.keyboard.press("Enter");
  await page.waitForSelector(".shell");
}
for (const [look, width] of looks) {
  await page.setViewportSize({ width, height: 900 });
  await page.evaluate((theme) => localStorage.setItem("tuft.theme", theme), look);
  for (const path of pages) {
    await page.goto(`${address}/console${path}`);
    await page.waitForTimeout(1300);
    await examine(`${path} ${look} ${width}`, width);
  }
}
await page.setViewportSize({ width: 1440, height: 900 });
await page.goto(`${address}/console/`);
await page.waitForTimeout(800);
const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
await browser.close();
console.log(`first contentful paint after ${Math.round(paint)} ms`);
for (const problem of problems) console.log(problem);
process.exitCode = problems.size ? 1 : 0;
