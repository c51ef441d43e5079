// SPDX-License-Identifier: Apache-2.0
import { expect, test } from "vitest";
import type { Cycle, Outcome } from "./api";
import { bars, fitting, stalls } from "./timeline";

const NOON = Date.parse("2026-01-01T12:00:00Z") / 1000;

function at(second: number): string {
  return new Date((NOON + second) * 1000).toISOString();
}

function cycle(begins: number, outcome: Outcome, written: number | null = null, ended: number | null = null): Cycle {
  const times = { began: at(begins), written: written === null ? null : at(written), ended: ended === null ? null : at(ended) };
  return { commit_id: `c${begins}`, outcome, landed: 1, files: 1, ...times } as Cycle;
}

test("a cycle is written, then committed; one under way reaches to now", () => {
  const found = bars([cycle(0, "complete", 5, 7), cycle(10, "running")], NOON + 20);
  expect(found.map((b) => [b.lane, b.from - NOON, b.to - NOON])).toEqual([
    [0, 0, 5],
    [1, 5, 7],
    [0, 10, 20],
  ]);
});

test("empty cycles are no bars, and a failed one has no commit", () => {
  expect(bars([cycle(0, "empty", null, 1), cycle(2, "refused", null, 3)], NOON)).toEqual([]);
  expect(bars([cycle(0, "failed", 4)], NOON + 60).map((b) => b.lane)).toEqual([0]);
});

test("a stall is from the first failure to the next end, in whatever order cycles come", () => {
  const cycles = [cycle(40, "complete", 41, 45), cycle(20, "failed"), cycle(10, "failed"), cycle(0, "complete", 1, 2)];
  expect(stalls(cycles)).toEqual([{ from: NOON + 10, to: NOON + 45 }]);
  expect(stalls([cycle(10, "failed")])).toEqual([{ from: NOON + 10, to: null }]);
  expect(stalls([])).toEqual([]);
});

test("the span fits the newest ten cycles", () => {
  const cycles = Array.from({ length: 30 }, (_, n) => cycle(-60 * n, "complete"));
  expect(fitting(cycles, NOON)).toBe(600);
  expect(fitting(cycles.map((c, n) => ({ ...c, began: at(-3600 * n) })), NOON)).toBe(86_400);
  expect(fitting([], NOON)).toBe(600);
});
