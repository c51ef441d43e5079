// SPDX-License-Identifier: Apache-2.0
import { afterEach, expect, test, vi } from "vitest";
import { languageTag } from "./language";

const LANGUAGE = Object.getOwnPropertyDescriptor(navigator, "language");

afterEach(() => {
  if (LANGUAGE === undefined) Reflect.deleteProperty(navigator, "language");
  else Object.defineProperty(navigator, "language", LANGUAGE);
});

test.each([
  ["en-US", "en-US"],
  ["de", "de"],
  ["en-US@posix", "en-US"],
  ["C", "en-US"],
  ["", "en-US"],
])("%j becomes a tag that Intl takes", (reported, tag) => {
  expect(languageTag(reported)).toBe(tag);
});

test("the charts load in a browser whose language is no tag", async () => {
  Object.defineProperty(navigator, "language", { value: "en-US@posix", configurable: true });
  // jsdom lacks it, and uPlot asks it for the density of the screen.
  vi.stubGlobal("matchMedia", () => ({ addEventListener: () => undefined }));
  vi.resetModules();
  await expect(import("./chart")).resolves.toHaveProperty("Chart");
});
