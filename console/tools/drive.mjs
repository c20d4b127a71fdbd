// Drives the pages of traces, runs and the playground in Debian's Chromium as a reader does, and says what failed:
//   npm run mock & node tools/drive.mjs [URL]
// TUFT_API_KEY is the key to log in with. Works with the development server and with a real one that has some traces.

import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [address = "http://127.0.0.1:5199"] = process.argv.slice(2);
const browser = await chromium.launchPersistentContext(mkdtempSync(join(tmpdir(), "drive-")), {
  executablePath: "/usr/bin/chromium",
  headless: true,
  viewport: { width: 1440, height: 900 },
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
const problems = new Set();
page.on("console", (message) => message.type() === "error" && problems.add(message.text()));
page.on("pageerror", (error) => problems.add(String(error)));

let failures = 0;
function check(what, holds, more = "") {
  if (!holds) ++failures;
  console.log(`${holds ? "ok    " : "FAILED"} ${what} ${more}`);
}
const param = (name) => new URL(page.url()).searchParams.get(name);
/** Waits until a condition of the page's address or content holds; false if it does not in time. */
async function until(condition, millis = 8000) {
  const end = Date.now() + millis;
  for (;;) {
    if (await condition()) return true;
    if (Date.now() > end) return false;
    await page.evaluate(() => new Promise(requestAnimationFrame));
  }
}
const open = (path) => page.goto(`${address}/console${path}`);
const text = (selector) => page.locator(selector).first().innerText();

async function login() {
  await open("/");
  await page.waitForSelector('input[type="password"], .shell');
  const field = page.locator('input[type="password"]');
  if ((await field.count()) === 0) return;
  await field.fill(process.env.TUFT_API_KEY ?? "operator");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".shell");
}

async function driveList() {
  await open("/traces");
  await page.waitForSelector(".histogram-bars button, .chart-none.static");
  await page.waitForSelector(".table-row");
  const box = await page.locator(".histogram-bars").boundingBox();
  if (box) {
    await page.mouse.move(box.x + box.width * 0.5, box.y + 50);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.9, box.y + 50, { steps: 5 });
    await page.mouse.up();
    check(
      "a brush over the durations filters",
      await until(() => param("min_duration") ?? param("max_duration")),
      page.url(),
    );
    await page.goBack();
    check("the back button takes it off", await until(() => !param("min_duration")));
  }
  // Traces of operations have spans below each other, unlike those of polls.
  await open("/traces?name=future_store.execute_operation");
  await page.waitForSelector(".table-row");
  const rows = await page.locator(".table-row").count();
  check("traces are listed", rows > 0, `${rows} rows drawn`);
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  check("Enter opens a trace", await until(() => /traces\/[0-9a-f]{32}/.test(page.url())), page.url());
}

async function driveTrace() {
  await page.waitForSelector(".tl-scroll");
  await page.locator(".tl-scroll").focus();
  await page.keyboard.press("Escape");
  for (let i = 0; i < 3; ++i) await page.keyboard.press("ArrowDown");
  check("the arrow keys select", await until(() => param("span")), await text(".span-name"));
  await page.keyboard.press("+");
  check("+ zooms, and the zoom is in the address", await until(() => param("zoom")), param("zoom"));
  await page.keyboard.press("0");
  check("0 shows the whole trace", await until(() => !param("zoom")));
  await page.keyboard.press("]");
  check(
    "] goes along the critical path",
    await until(async () => (await text("[aria-live=polite]")).includes("critical path")),
    await text("[aria-live=polite]"),
  );
  const name = (await text(".span-name")).split(/[ .(]/)[0];
  await page.fill(".trace-search input", name);
  check(
    "the search is in the address",
    await until(() => param("q") === name),
    `${await text(".trace-found")} match "${name}"`,
  );
  await page.locator(".trace-search input").press("Enter");
  const selected = await text(".span-name");
  await page.reload();
  await page.waitForSelector(".span-name");
  check(
    "the address restores selection and search",
    (await text(".span-name")) === selected && (await page.inputValue(".trace-search input")) === name,
  );
  for (const view of ["Flame graph", "Table", "Waterfall"]) {
    await page.click(`.segments >> text=${view}`);
    check(
      `${view} is drawn`,
      await page
        .locator(view === "Table" ? '[role="grid"]' : ".tl-canvas")
        .first()
        .isVisible(),
    );
  }
  const strip = await page.locator(".tl-minimap").boundingBox();
  await page.mouse.move(strip.x + strip.width * 0.3, strip.y + 20);
  await page.mouse.down();
  await page.mouse.move(strip.x + strip.width * 0.5, strip.y + 20, { steps: 4 });
  await page.mouse.up();
  check("the strip above zooms", await until(() => param("zoom")), param("zoom"));
  const [download] = await Promise.all([
    page.waitForEvent("download", { timeout: 5000 }).catch(() => null),
    page.click("text=Perfetto"),
  ]);
  check("the file for Perfetto is handed out", download !== null, download?.suggestedFilename());
  await page.click("text=Compare…");
  await open("/traces?name=future_store.execute_operation");
  await page.waitForSelector(".table-row");
  await page.locator(".table-row").nth(5).click();
  await page.waitForSelector(".tl-scroll");
  await page.locator("text=/^Compare with/").first().click();
  await page.waitForSelector(".compare");
  check("two traces are compared", page.url().includes("/compare/"), await text(".why-summary"));
}

async function driveRuns() {
  await open("/runs");
  await page.waitForSelector(".run-check, .empty");
  const runs = await page.locator(".run-check").count();
  if (runs === 0) return check("there are runs", false);
  await page.locator(".run-check").first().click();
  check("a chosen run is in the address", await until(() => param("runs")), param("runs"));
  await page.locator(".table-row .run-name").first().click();
  check("a run opens", await until(() => /\/runs\/.+train/.test(decodeURIComponent(page.url()))), page.url());
  await page.waitForSelector(".run-figures");
  check("its curves are drawn", await until(async () => (await page.locator(".chart canvas").count()) >= 4));
}

async function drivePlayground() {
  await open("/playground");
  await page.waitForSelector(".play-prompt");
  check("a model is chosen", await until(() => param("a")), param("a"));
  await page.fill(".play-prompt", "Once upon a time");
  await page.keyboard.press("Control+Enter");
  check("tokens stream", await until(async () => (await page.locator("[data-token]").count()) > 3, 30_000));
  check(
    "the answer ends",
    await until(async () => /length|stop/.test(await text(".pane-head")), 60_000),
    await text(".pane-head"),
  );
  await page.locator("[data-token]").first().focus();
  await page.keyboard.press("ArrowRight");
  check(
    "a token has alternatives",
    await until(async () => (await page.locator(".token-card li").count()) > 0),
    (await text(".token-card")).replaceAll("\n", " "),
  );
}

await login();
await driveList();
await driveTrace();
await driveRuns();
await drivePlayground();
await browser.close();
for (const problem of problems) console.log(`the browser's console says: ${problem}`);
process.exit(failures ? 1 : 0);
