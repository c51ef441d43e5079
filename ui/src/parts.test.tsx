// SPDX-License-Identifier: Apache-2.0
import { render } from "preact";
import { expect, test } from "vitest";
import type { Landing } from "./api";
import { budgeted, equalNames, fullest, headline, Lag, Name, pending } from "./parts";

const NOON = Date.parse("2026-01-01T12:00:00Z") / 1000;

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

test("lags are told with the time since when they are", () => {
  const place = document.createElement("div");
  render(
    <p>
      <Lag records={1200} since="2026-01-01T12:00:00Z" now={NOON + 3} />|<Lag records={0} since={null} now={NOON} />
    </p>,
    place,
  );
  expect(place.textContent).toBe("1.2 k · 3 s|0");
});

test("a card has one line of why, and a blocked one counts", () => {
  const why = (verdict: string, reason: string, blocked = 0) =>
    headline({ verdict, reason, blocked } as unknown as Landing);
  expect(why("healthy", "the last cycle is committed")).toBe("the last cycle is committed");
  expect(why("stalled", "no commit for 12 min; 3 slices wait; the catalog is away")).toBe("no commit for 12 min");
  expect(why("blocked", "1 range needs action: orders[0] [0, 400): 12 of 400 …", 400)).toBe(
    "400 offsets blocked; all others are landed",
  );
  expect(why("unknown", "x".repeat(500)).length).toBe(141);
});

test("landings of one name are told apart by their control topics, and further tables are counted", () => {
  const one = { name: "orders", tables: ["a.b", "a.c", "a.d"], connection: "k", control_topic: "east", kind: "landing" };
  const two = { ...one, control_topic: "west" };
  const all = [one, two, { ...one, name: "clicks" }] as unknown as Landing[];
  expect([...equalNames(all)]).toEqual(["orders"]);
  const place = document.createElement("div");
  render(<Name landing={all[1] as Landing} apart />, place);
  expect(place.textContent).toBe("orders → a.b and 2 more tables (k/west)");
});
