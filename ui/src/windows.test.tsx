// SPDX-License-Identifier: Apache-2.0
import { render } from "preact";
import { expect, test } from "vitest";
import { addsUp, sum } from "./account";
import type { Account, Detail, Slice, SliceOutcome, Steps, Window } from "./api";
import { curves } from "./curves";
import { pace, Windows } from "./windows";

const NOON = Date.parse("2026-01-01T12:00:00Z") / 1000;
const NOTHING: Account = { read: 0, landed: 0, rejected: 0, filtered: 0, gaps: 0, skipped: 0, superseded: 0, deleted: 0 };
const HOSTILE = "<script>alert(1)</script>";

function slice(n: number, outcome: SliceOutcome): Slice {
  const reported = outcome === "waiting" ? null : "2026-01-01T12:00:05Z";
  const told = { slice_id: `s${n}`, group: n % 2, outcome, ranges: [`orders[${n}][0, 10)`], offsets: 10, reports: 1 };
  return { ...NOTHING, ...told, attempt: "ab", reported, rows: 1, files: 1, bytes: 1, seconds: 1, reason: "" };
}

function underWay(account: Partial<Account>, slices: Slice[]): Window {
  const group = (n: number) => {
    const of = slices.filter((s) => s.group === n);
    const done = of.filter((s) => s.outcome === "done").length;
    const counts = { slices: of.length, slices_done: done, slices_troubled: 0, offsets: 10, read: 5 };
    return { group: n, ...counts, bytes: 0, redundant: 0, reported: null };
  };
  return {
    ...NOTHING,
    ...account,
    commit_id: "c",
    began: "2026-01-01T12:00:00Z",
    dag: "land",
    run: HOSTILE,
    planned: 100,
    slices_total: slices.length,
    slices_done: 1,
    redundant: 0,
    rows: {},
    bytes: 0,
    failed: "",
    end_asked: "",
    groups: [group(0), group(1)],
    slices,
  };
}

test("a window tells how fast it goes once something was read", () => {
  expect(pace(underWay({}, []), NOON + 10)).toBeNull();
  expect(pace(underWay({ read: 50, landed: 50 }, []), NOON + 10)).toEqual({ rate: 5, left: 10 });
  expect(pace(underWay({ read: 120, landed: 120 }, []), NOON + 10)?.left).toBe(0);
});

test("every slice is a cell of its group, with its state in words, and hostile texts stay texts", () => {
  const place = document.createElement("div");
  const slices = [slice(0, "done"), slice(1, "waiting"), slice(2, "failed")];
  const landing = { windows: [underWay({ read: 10, landed: 10 }, slices)], dags: [] } as unknown as Detail;
  render(<Windows landing={landing} now={NOON + 20} />, place);
  expect([...place.querySelectorAll(".groups li")].map((li) => li.querySelectorAll(".cell").length)).toEqual([2, 1]);
  expect(place.querySelector(".cell.failed")?.getAttribute("title")).toContain("failed");
  expect(place.textContent).toContain("1 of 3 slices");
  expect(place.textContent).toContain(HOSTILE);
  expect(place.querySelector("script")).toBeNull();
});

test("the accounting is told as a sum, and one that does not add up is not hidden", () => {
  const account = { ...NOTHING, read: 15, landed: 12, rejected: 2, filtered: 1 };
  expect(sum(account)).toBe("15 offsets read = 12 landed + 2 rejected + 1 filtered");
  expect(addsUp(account)).toBe(true);
  const upserted = { ...NOTHING, read: 9, landed: 4, superseded: 3, deleted: 2 };
  expect(sum(upserted)).toBe("9 offsets read = 4 landed + 3 superseded + 2 deletes");
  expect(addsUp(upserted)).toBe(true);
  expect(addsUp({ ...account, gaps: 1 })).toBe(false);
});

test("buckets of every length are drawn by the second, and what is not known is left out", () => {
  const none = [null, null];
  const sums = { rejected: [0, 0], bytes: [0, 0], files: [0, 0], commits: [0, 0], failures: [0, 0] };
  const steps: Steps = {
    step_seconds: 60,
    begin: "2026-01-01T12:00:00Z",
    read: [60, 0],
    committed: [0, 120],
    ...sums,
    read_lag: [5, null],
    commit_lag: none,
    read_lag_seconds: [3, null],
    table_lag_seconds: none,
    commit_seconds: none,
  };
  const drawn = curves(steps, false);
  expect(drawn.times).toEqual([NOON, NOON + 60]);
  expect(drawn.rates.map((s) => s.values)).toEqual([
    [1, 0],
    [0, 2],
  ]);
  expect(drawn.lags.map((s) => s.label)).toEqual(["not read"]);
  expect(drawn.late.map((s) => [s.label, s.values])).toEqual([["not read", [3, null]]]);
  expect(drawn.commits).toEqual([]);
  expect(curves(steps, true).rates[0]?.label).toBe("announced");
});
