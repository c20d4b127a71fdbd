// How long the layouts of 100,000 spans take: `npx vitest bench`.
import { bench, describe } from "vitest";
import { layoutLanes } from "./lanes.ts";
import { drawMinimap } from "./minimap.ts";
import { layoutRows } from "./rows.ts";
import { makeLargeTrace } from "./sample.ts";
import { searchSpans } from "./search.ts";
import { buildTree } from "./tree.ts";

const spans = makeLargeTrace(100_000);
const tree = buildTree(spans);
const rows = layoutRows(tree, new Set());

describe("100,000 spans", () => {
  bench("tree", () => void buildTree(spans), { iterations: 10 });
  bench("rows, one collapsed", () => void layoutRows(tree, new Set([5])), { iterations: 10 });
  bench("lanes", () => void layoutLanes(tree), { iterations: 10 });
  bench("minimap", () => void drawMinimap(tree, rows, 1600, 64), { iterations: 10 });
  bench("search", () => void searchSpans(tree, "redis"), { iterations: 10 });
});
