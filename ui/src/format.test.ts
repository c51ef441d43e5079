// SPDX-License-Identifier: Apache-2.0
import { expect, test } from "vitest";
import { ago, bytes, clocks, count, duration, rate, short, span } from "./format";

test.each([
  [null, "–"],
  [0, "0"],
  [999, "999"],
  [1000, "1.0 k"],
  [1_234_567, "1.2 M"],
  [999_999, "1.0 M"],
  [123_456, "123 k"],
])("count %s", (value, shown) => {
  expect(count(value)).toBe(shown);
});

test.each([
  [0, "0 s"],
  [59, "59 s"],
  [60, "1 min"],
  [125, "2 min 5 s"],
  [3_600 * 2 + 300, "2 h 5 min"],
  [840, "14 min"],
  [86_400 * 30, "30 d"],
  [-5, "0 s"],
])("span %s", (seconds, shown) => {
  expect(span(seconds)).toBe(shown);
});

test("what took a moment is not nothing", () => {
  expect([0.04, 0.26, 9.94, 75].map(duration)).toEqual(["40 ms", "260 ms", "9.9 s", "1 min 15 s"]);
});

test("what never was is not long ago", () => {
  expect(ago(null, 0)).toBe("never");
  expect(ago("1970-01-01T00:01:00Z", 90)).toBe("30 s");
});

test("bytes and long names", () => {
  expect(bytes(80 * 1024 * 1024)).toBe("80.0 MiB");
  expect(bytes(12)).toBe("12 B");
  expect(short("a".repeat(4000)).length).toBeLessThan(61);
  expect(short("orders")).toBe("orders");
});

test("a time axis tells the day once, and no time of the evening as one of the morning", () => {
  const evening = new Date(2026, 0, 1, 22, 30).getTime() / 1000;
  const told = clocks([evening, evening + 1800, evening + 5400]);
  expect(told.map((text) => text.split("\n")[0])).toEqual(["22:30", "23:00", "00:00"]);
  expect(told.map((text) => text.includes("\n"))).toEqual([true, false, true]);
});

test("rates below ten have tenths", () => {
  expect([0, 0.25, 0.9, 1, 9.96, 1234].map(rate)).toEqual(["0", "0.3", "0.9", "1", "10", "1.2 k"]);
});
