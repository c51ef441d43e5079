// SPDX-License-Identifier: Apache-2.0
/** The last cycles of a landing, a mark each: height by records, colour and shape by how it ended. */
import type { CycleMark, Outcome } from "./api";
import { absolute, count } from "./format";

export const STRIP = 50;
const WIDTH = 5;
const HEIGHT = 24;
const LEAST = 4;

const WORDS: Record<Outcome, string> = {
  running: "running",
  complete: "complete",
  partial: "partly complete",
  failed: "failed",
  empty: "no new records",
  refused: "nothing planned",
  blocked: "nothing planned: the rest is blocked",
  left: "continued by a later cycle",
};

export function outcomeWords(outcome: Outcome): string {
  return WORDS[outcome];
}

/** Heights grow with the logarithm: an hour's backlog and a quiet minute are both seen. */
export function heights(cycles: CycleMark[]): number[] {
  const most = Math.max(1, ...cycles.map((c) => c.landed || c.files));
  return cycles.map((c) => {
    const size = c.landed || c.files;
    // A failure is seen, whatever it had read.
    if (size === 0) return c.outcome === "failed" ? HEIGHT / 2 : LEAST;
    return LEAST + ((HEIGHT - LEAST) * Math.log1p(size)) / Math.log1p(most);
  });
}

export function summary(cycles: CycleMark[]): string {
  const counts = new Map<Outcome, number>();
  for (const c of cycles) counts.set(c.outcome, (counts.get(c.outcome) ?? 0) + 1);
  const parts = [...counts].map(([outcome, n]) => `${n} ${WORDS[outcome]}`);
  return parts.length ? `last ${cycles.length} cycles: ${parts.join(", ")}` : "no cycle seen";
}

export function Strip({ cycles }: { cycles: CycleMark[] }) {
  const shown = cycles.slice(-STRIP);
  const tall = heights(shown);
  return (
    <svg class="strip" width={STRIP * WIDTH} height={HEIGHT} role="img" aria-label={summary(shown)}>
      {shown.map((cycle, i) => {
        const height = tall[i] ?? LEAST;
        const x = (STRIP - shown.length + i) * WIDTH;
        const broken = cycle.outcome === "failed" || cycle.outcome === "partial";
        return (
          <g key={cycle.commit_id} class={`mark ${cycle.outcome}`}>
            <title>
              {`${absolute(cycle.began)}: ${WORDS[cycle.outcome]}, ${count(cycle.landed)} records, ${cycle.files} files`}
            </title>
            <rect x={x} y={HEIGHT - height} width={WIDTH - 1} height={height} />
            {broken && <line x1={x} y1={HEIGHT} x2={x + WIDTH - 1} y2={HEIGHT - height} />}
          </g>
        );
      })}
    </svg>
  );
}
