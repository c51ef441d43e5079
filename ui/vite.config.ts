// SPDX-License-Identifier: Apache-2.0
// Built into the Python package, with relative addresses: Airflow may stand behind any path.
import preact from "@preact/preset-vite";
import { defineConfig } from "vitest/config";

export default defineConfig({
  base: "./",
  plugins: [preact()],
  build: {
    outDir: "../airflow_provider_lakecommit/page/static",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // The libraries within are under the MIT licence, which wants to be told.
    license: { fileName: "licences.md" },
  },
  test: { environment: "jsdom", include: ["src/**/*.test.{ts,tsx}"] },
});
