// SPDX-License-Identifier: Apache-2.0
import { render } from "preact";
import { expect, test } from "vitest";
import type { Landing, Part, Sample, Samples } from "./api";
import { visible } from "./format";
import { budgeted, fullest, Lag, pending, SmallFiles } from "./parts";
import { DeadLetters, whole } from "./samples";

const NOON = Date.parse("2026-01-01T12:00:00Z") / 1000;
const SCRIPT = "<script>window.hostile = 1</script>";

function text(told: string, size = new TextEncoder().encode(told).length): Part {
  return { size, text: told, base64: null };
}

function letter(value: Part | null, more: Partial<Sample> = {}): Sample {
  const told = { partition: "orders[0]", offset: 7, at: null, kind: "not_json", reason: "no", headers: [], key: null };
  return { ...told, value, ...more };
}

function shown(samples: Partial<Samples>, counted = true): HTMLElement {
  const place = document.createElement("div");
  const told: Samples = { samples: [], as_of: "2026-01-01T12:00:00Z", trouble: "", hidden: "", ...samples };
  render(<DeadLetters samples={told} counted={counted} now={NOON + 5} />, place);
  return place;
}

test("what would not be seen, or would turn what is around it, is told by its number", () => {
  expect(visible("a\u0000b\u202ec\u200dd\ufeff")).toBe("a\\u{0}b\\u{202e}c\\u{200d}d\\u{feff}");
  expect(visible("two\nlines\tand ä € 😀 عربي")).toBe("two\nlines\tand ä € 😀 عربي");
  expect(visible("\u{e0041}\u2028\u0085")).toBe("\\u{e0041}\\u{2028}\\u{85}");
});

test("values of records are texts, whatever they hold", () => {
  const place = shown({
    samples: [
      letter(text(SCRIPT), { headers: [SCRIPT], key: text("k") }),
      letter(text("\u202etxt.exe\u0000"), { offset: 8, kind: `wrong_value ${SCRIPT}` }),
      letter({ size: 9, text: null, base64: btoa("abc") }, { offset: 9 }),
      letter(null, { offset: 10 }),
    ],
  });
  expect(place.querySelector("script")).toBeNull();
  expect([...place.querySelectorAll("pre")].map((p) => p.textContent)).toEqual(["k", SCRIPT, "\\u{202e}txt.exe\\u{0}", "YWJj …"]);
  expect(place.textContent).toContain("no UTF-8");
  expect(place.textContent).toContain("no value");
  expect(place.textContent).toContain("as of 5 s ago");
});

test("what is cut says so", () => {
  expect(whole(text("ä"))).toBe(true);
  expect(whole(text("ä", 3))).toBe(false);
  expect(whole({ size: 3, text: null, base64: btoa("abc") })).toBe(true);
});

test("where no sample is told the reason is, if something was rejected", () => {
  expect(shown({ hidden: "off" }).textContent).toContain("off");
  expect(shown({ hidden: "off" }, false).textContent).toBe("");
  expect(shown({ trouble: "the catalog is away" }).textContent).toContain("the catalog is away");
  expect(shown({ as_of: null }).textContent).toContain("they are looked for");
  expect(shown({}).textContent).toBe("");
});

const WAITS = {
  open_cycles: 1,
  blocked: 0,
  pending: { slices: 2, files: 60, files_most: 50, bytes: 1 << 20 },
  budget: { open_cycles: 16, slices: null, files: 100, bytes: 1 << 30 },
} as unknown as Landing;

test("what waits is told against the budget that is nearest to full", () => {
  expect(budgeted(WAITS).map((b) => [b.option, b.used, b.most])).toEqual([
    ["open_cycles", 1, 16],
    ["pending_files", 50, 100],
    ["pending_bytes", 1 << 20, 1 << 30],
  ]);
  expect(fullest(WAITS)?.option).toBe("pending_files");
  expect(pending(WAITS)).toBe("2 slices · 60 files · 1.0 MiB · 50 % of max_pending_files");
  expect(budgeted({ ...WAITS, budget: null })).toEqual([]);
  const quiet = { ...WAITS, pending: { slices: 1, files: 1, files_most: 1, bytes: 0 }, open_cycles: 0 };
  expect(pending(quiet)).toBe("1 slice · 1 file");
});

test("small files and lags are told as far as they are known", () => {
  const place = document.createElement("div");
  const files = { files: 40, bytes: 4 << 20, small: 39, limit: 1 << 20, as_of: null, trouble: "" };
  render(
    <p>
      <SmallFiles files={files} />|<SmallFiles files={{ ...files, small: null }} />|<SmallFiles files={null} />|
      <Lag records={1200} since="2026-01-01T12:00:00Z" now={NOON + 3} />|<Lag records={0} since={null} now={NOON} />
    </p>,
    place,
  );
  expect(place.textContent).toBe("39 of 40|– of 40|–|1.2 k · 3 s|0");
});
