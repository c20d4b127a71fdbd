// Records frame times while a trace is scrolled and zoomed in Debian's Chromium:
//   npm run mock & node tools/frames.mjs [URL] [TRACE]
// The default trace is the development server's of 100,000 spans. Prints the median, p95, p99 and longest frame.

import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [address = "http://127.0.0.1:5199", trace = "1a26e100000"] = process.argv.slice(2);
const browser = await chromium.launchPersistentContext(mkdtempSync(join(tmpdir(), "frames-")), {
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
await page.goto(`${address}/console/`);
const field = page.locator('input[type="password"]');
await page.waitForSelector('input[type="password"], .shell');
if (await field.count()) {
  await field.fill(process.env.TUFT_API_KEY ?? "operator");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".shell");
}

// The main thread's own processor time, which other programs of the machine do not disturb.
const session = await browser.newCDPSession(page);
await session.send("Performance.enable", { timeDomain: "threadTicks" });
const busySeconds = async () => {
  const { metrics } = await session.send("Performance.getMetrics");
  return metrics.find((metric) => metric.name === "TaskDuration").value;
};

/** Wakes in each frame, does `step`, and measures the time from frame to frame and of the drawing in it. */
async function record(name, step, frames = 240) {
  const busy = await busySeconds();
  const times = await page.evaluate(
    ([source, count]) =>
      new Promise((resolve) => {
        // biome-ignore lint/security/noGlobalEval: a tool for developers runs its own text.
        const act = eval(source);
        const gaps = [];
        let last = performance.now();
        let k = 0;
        const tick = (now) => {
          gaps.push(now - last);
          last = now;
          if (k >= count) return resolve(gaps.slice(2));
          act(k++);
          requestAnimationFrame(tick);
        };
        requestAnimationFrame(tick);
      }),
    [`(${step})`, frames],
  );
  const cpu = (((await busySeconds()) - busy) * 1000) / frames;
  times.sort((a, b) => a - b);
  const at = (share) => times[Math.min(times.length - 1, Math.floor(times.length * share))].toFixed(1);
  const smooth = ((times.filter((time) => time < 20).length / times.length) * 100).toFixed(1);
  console.log(
    `${name.padEnd(28)} median ${at(0.5)} ms, p95 ${at(0.95)}, p99 ${at(0.99)}, max ${at(1)}; ${smooth} % under 20 ms; main thread ${cpu.toFixed(1)} ms of CPU a frame`,
  );
}

const scroll = "(k) => { document.querySelector('.tl-scroll').scrollTop += 120; }";
const jump =
  "(k) => { const box = document.querySelector('.tl-scroll'); box.scrollTop = (k * 7919) % 1000 / 1000 * box.scrollHeight; }";
const zoom =
  "(k) => { const box = document.querySelector('.tl-scroll'); const at = box.getBoundingClientRect();" +
  " box.dispatchEvent(new WheelEvent('wheel', { ctrlKey: true, cancelable: true, bubbles: true, deltaY: k % 80 < 40 ? -20 : 20," +
  " clientX: at.left + at.width * 0.6, clientY: at.top + 100 })); }";
const hover =
  "(k) => { const box = document.querySelector('.tl-scroll'); const at = box.getBoundingClientRect();" +
  " box.dispatchEvent(new PointerEvent('pointermove', { bubbles: true, clientX: at.left + (k * 37) % at.width, clientY: at.top + 40 + (k * 13) % (at.height - 60) })); }";

for (const view of ["waterfall", "flame"]) {
  const began = Date.now();
  await page.goto(`${address}/console/traces/${trace}?view=${view}`);
  await page.waitForSelector(".tl-scroll");
  console.log(`${view}: shown after ${Date.now() - began} ms`);
  await page.waitForTimeout(1500);
  if (view === "waterfall") {
    await record("idle", "(k) => {}");
    await record("scrolling", scroll);
    await record("jumping", jump);
  }
  await record("zooming", zoom);
  await record("hovering", hover);
  await page.screenshot({ path: `shots/frames-${view}.png` });
}
await browser.close();
