// Draws pages of the console to console/shots with Debian's Chromium: node tools/shots.mjs [URL] ["PAGE PAGE ..."]
// The pictures are for looking at; the tests of the console are elsewhere.

import { mkdirSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [address = "http://127.0.0.1:5199", list] = process.argv.slice(2);
const everything =
  "/ /traces /logs /metrics /metrics?metric=tuft.training.step.duration&by=phase /runs /samplers /playground /tenants /system";
const pages = (list ?? everything).split(" ");
const looks = [
  ["light", { width: 1440, height: 900 }],
  ["dark", { width: 1440, height: 900 }],
  ["phone", { width: 375, height: 812 }],
];

mkdirSync("shots", { recursive: true });
const browser = await chromium.launchPersistentContext(mkdtempSync(join(tmpdir(), "shots-")), {
  executablePath: "/usr/bin/chromium",
  headless: true,
  args: [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
  ],
});
const page = await browser.newPage();
const problems = [];
page.on("console", (message) => message.type() === "error" && problems.push(`${page.url()}: ${message.text()}`));
page.on("pageerror", (error) => problems.push(`${page.url()}: ${error}`));
await page.goto(`${address}/console/`);
const field = page.locator('input[type="password"]');
await page.waitForSelector('input[type="password"], .shell');
if (await field.count()) {
  await page.screenshot({ path: "shots/login.png" });
  await field.fill(process.env.TUFT_API_KEY ?? "operator");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".shell");
}
for (const [look, viewport] of looks) {
  await page.setViewportSize(viewport);
  await page.evaluate((theme) => localStorage.setItem("tuft.theme", theme), look === "dark" ? "dark" : "light");
  for (const path of pages) {
    const name =
      path
        .replace(/[^\w]+/g, "_")
        .replace(/^_|_$/g, "")
        .slice(0, 60) || "overview";
    await page.goto(`${address}/console${path}`);
    await page.waitForTimeout(1800);
    await page.screenshot({ path: `shots/${name}-${look}.png`, fullPage: process.env.FULL === "1" });
  }
}
await browser.close();
for (const problem of new Set(problems)) console.log(problem);
