// SPDX-License-Identifier: Apache-2.0
import { render } from "preact";
import { expect, test } from "vitest";
import type { CycleMark, Outcome } from "./api";
import { heights, Strip, STRIP, summary } from "./strip";

function cycle(n: number, outcome: Outcome, records = 10): CycleMark {
  return { commit_id: `c${n}`, began: "2026-01-01T00:00:00Z", outcome, landed: records, files: 1 };
}

test("more records are a taller mark, and none is still one", () => {
  const [none, few, many] = heights([cycle(1, "empty", 0), cycle(2, "complete", 10), cycle(3, "complete", 1_000_000)]);
  expect(few).toBeGreaterThan(none ?? 0);
  expect(many).toBeGreaterThan(few ?? 0);
});

test("the summary says in words what colours say", () => {
  expect(summary([cycle(1, "complete"), cycle(2, "failed"), cycle(3, "failed")])).toBe(
    "last 3 cycles: 1 complete, 2 failed",
  );
  expect(summary([])).toBe("no cycle seen");
});

test("only the newest are drawn, and hostile texts stay texts", () => {
  const place = document.createElement("div");
  const many = Array.from({ length: STRIP + 20 }, (_, n) => cycle(n, "complete"));
  render(<Strip cycles={[...many, { ...cycle(999, "failed"), commit_id: "<script>alert(1)</script>" }]} />, place);
  expect(place.querySelectorAll("rect").length).toBe(STRIP);
  expect(place.querySelector("script")).toBeNull();
});
