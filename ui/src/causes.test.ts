// SPDX-License-Identifier: Apache-2.0
import { expect, test } from "vitest";
import type { Cycle } from "./api";
import { causes } from "./causes";

test("failed cycles are counted by cause, whatever address is in its text", () => {
  const failed = (n: number, text: string) => ({ outcome: "failed", failed: text, began: `t${n}`, ended: null }) as Cycle;
  const over = { outcome: "complete", failed: "b", began: "t0", ended: "t0" } as Cycle;
  const cycles = [failed(3, "a at 0x7f2d"), failed(2, "b"), failed(1, "a at 0x11"), over, failed(0, "c")];
  expect(causes(cycles)).toEqual([
    { text: "a at 0x7f2d", cycles: 2, last: "t3" },
    { text: "b", cycles: 1, last: "t2" },
  ]);
});
