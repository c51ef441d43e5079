// SPDX-License-Identifier: Apache-2.0
/** Imported before uPlot, which passes the browser's language to `Intl` while it is loaded.
 *
 * Chromium in the C locale reports "en-US@posix". That is no language tag, so `Intl` throws, and the page stays blank.
 */

/** The tag itself where `Intl` takes it, else its part before "@", else English. */
export function languageTag(reported: string): string {
  for (const tag of [reported, reported.split("@")[0] ?? ""]) {
    try {
      return Intl.getCanonicalLocales(tag)[0] ?? "en-US";
    } catch {
      // Not a tag: the next one.
    }
  }
  return "en-US";
}

const tag = languageTag(navigator.language);
if (tag !== navigator.language) Object.defineProperty(navigator, "language", { value: tag, configurable: true });
