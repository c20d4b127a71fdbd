import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { mockApi } from "./mock/plugin.ts";

// `TUFT_URL=http://127.0.0.1:10610 npm run dev` develops against a running server instead of the made-up data.
const server = process.env.TUFT_URL;
const proxied = ["/api", "/oai", "/console/login", "/console/logout"];

export default defineConfig({
  base: "/console/",
  plugins: server ? [] : [mockApi()],
  resolve: { alias: { "~": fileURLToPath(new URL("./src", import.meta.url)) } },
  server: server
    ? { proxy: Object.fromEntries(proxied.map((path) => [path, { target: server, changeOrigin: true }])) }
    : {},
  build: {
    outDir: "dist",
    target: "es2022",
    // The content security policy allows neither data: scripts nor inline styles.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    cssCodeSplit: false,
    reportCompressedSize: true,
    sourcemap: false,
  },
  test: { include: ["src/**/*.test.ts", "tools/**/*.test.ts"], environment: "node" },
});
