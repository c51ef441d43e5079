// SPDX-License-Identifier: Apache-2.0
import { render } from "preact";
import { expect, test } from "vitest";
import type { Landing } from "./api";
import { Answers, budgeted, equalNames, fullest, Lag, Name, pending, Table } from "./parts";

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

test("a card answers what a person on call asks, with the raw text folded and commands whole", () => {
  const command = "lakecommit doctor --dag land --landing orders";
  const stalled = {
    ...WAITS,
    cause: `shop.orders: ConnectionError: ${"x".repeat(400)}`,
    clears: "the next commit that succeeds",
    if_nothing: "Each run tries again.",
    held: { waiting: 2, ended: 1, sensors: [] },
    remedies: [{ command, does: "checks brokers" }, { command: "other", does: "" }],
    commit_lag: 1,
    read_lag: 0,
    last_commit: "2026-01-01T12:00:00Z",
    valid_through: null,
  } as unknown as Landing;
  const place = document.createElement("div");
  render(<Answers landing={stalled} now={NOON + 60} commands={1} />, place);
  const terms = [...place.querySelectorAll("dt")].map((dt) => dt.textContent);
  expect(terms).toEqual(["Why", "Waits", "Held", "Cleared by", "What to do", "If you do nothing", "Last commit"]);
  expect(place.querySelector("details.raw")?.hasAttribute("open")).toBe(false);
  expect([...place.querySelectorAll("code")].map((c) => c.textContent)).toEqual([command]);
  expect(place.textContent).toContain("1 record read and not committed · 2 slices");
});

test("on a phone each cell names its column", () => {
  const place = document.createElement("div");
  render(
    <Table label="t" heads={["kind", "#offsets"]}>
      <tr>
        <td>a</td>
        <td>1</td>
      </tr>
      {[2].map((n) => (
        <tr key={n}>
          <td>b</td>
          <td>{n}</td>
        </tr>
      ))}
    </Table>,
    place,
  );
  expect([...place.querySelectorAll("td")].map((td) => `${td.dataset["label"]} ${td.textContent}`)).toEqual([
    "kind a",
    "offsets 1",
    "kind b",
    "offsets 2",
  ]);
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
