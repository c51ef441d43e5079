// SPDX-License-Identifier: Apache-2.0
/** Why commits fail, by cause. */
import type { Cycle } from "./api";

export interface Cause {
  text: string;
  cycles: number;
  last: string;
}

/** Why cycles fail that are not over yet, the newest cause first; addresses in memory do not tell causes apart. */
export function causes(cycles: Cycle[]): Cause[] {
  const found = new Map<string, Cause>();
  for (const c of cycles) {
    // A later cycle that completed has published what the earlier ones had read.
    if (c.ended !== null) break;
    if (c.outcome !== "failed" || !c.failed) continue;
    const kind = c.failed.replace(/0x[0-9a-f]+/g, "0x…");
    const known = found.get(kind);
    if (known === undefined) found.set(kind, { text: c.failed, cycles: 1, last: c.began });
    else known.cycles += 1;
  }
  return [...found.values()];
}
