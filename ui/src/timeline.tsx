// SPDX-License-Identifier: Apache-2.0
/** The newest cycles on one line of time: writing, committing, and where commits did not come through. */
import { useState } from "preact/hooks";
import type { Cycle } from "./api";
import { absolute, count, duration, span } from "./format";
import { outcomeWords } from "./strip";

const WIDTH = 1000;
const LANE = 18;
const LEAST = 2;
const SPANS: [string, number][] = [
  ["10 min", 600],
  ["2 h", 7_200],
  ["1 d", 86_400],
  ["7 d", 604_800],
];
const LANES = ["write", "commit"];

export interface Bar {
  lane: number;
  from: number;
  to: number;
  cycle: Cycle;
}

function seconds(time: string): number {
  return Date.parse(time) / 1000;
}

/** A bar for the writing of each cycle and one for its commit; what is under way reaches to now. */
export function bars(cycles: Cycle[], now: number): Bar[] {
  return cycles.flatMap((cycle) => {
    if (["empty", "refused", "blocked"].includes(cycle.outcome)) return [];
    const open = cycle.outcome === "running" ? now : seconds(cycle.began);
    const ended = cycle.ended === null ? open : seconds(cycle.ended);
    const written = cycle.written === null ? ended : seconds(cycle.written);
    const write = { lane: 0, from: seconds(cycle.began), to: Math.max(seconds(cycle.began), written), cycle };
    return cycle.ended === null ? [write] : [write, { lane: 1, from: written, to: ended, cycle }];
  });
}

/** From the first of cycles that failed in a row until one completed; without an end while none has. */
export function stalls(cycles: Cycle[]): { from: number; to: number | null }[] {
  const found: { from: number; to: number | null }[] = [];
  let begun: number | null = null;
  for (const cycle of [...cycles].sort((a, b) => seconds(a.began) - seconds(b.began))) {
    if (cycle.outcome === "failed" || cycle.outcome === "left") begun ??= seconds(cycle.began);
    else if (begun !== null && cycle.ended !== null) {
      found.push({ from: begun, to: seconds(cycle.ended) });
      begun = null;
    }
  }
  return begun === null ? found : [...found, { from: begun, to: null }];
}

/** The shortest span that shows the newest ten cycles. */
export function fitting(cycles: Cycle[], now: number): number {
  const tenth = cycles[Math.min(9, cycles.length - 1)];
  const age = tenth === undefined ? 0 : now - seconds(tenth.began);
  return SPANS.find(([, length]) => age <= length)?.[1] ?? 604_800;
}

export function Timeline({ cycles, now }: { cycles: Cycle[]; now: number }) {
  const [chosen, setChosen] = useState<number | null>(null);
  if (cycles.length === 0) return null;
  const length = chosen ?? fitting(cycles, now);
  const x = (at: number) => WIDTH * (1 - (now - at) / length);
  const seen = bars(cycles, now).filter((b) => b.to >= now - length);
  const bands = stalls(cycles).filter((s) => (s.to ?? now) >= now - length);
  const words = `${seen.filter((b) => b.lane === 0).length} cycles and ${bands.length} stalls within ${span(length)}`;
  return (
    <section>
      <h2>
        Timeline{" "}
        <span class="filters inline" role="group" aria-label="Time range">
          {SPANS.map(([label, size]) => (
            <button
              key={label}
              type="button"
              aria-pressed={size === length}
              onClick={() => {
                setChosen(size);
              }}
            >
              {label}
            </button>
          ))}
        </span>
      </h2>
      <div class="timeline">
        <div class="lanes dim" aria-hidden="true">
          {LANES.map((lane) => (
            <span key={lane}>{lane}</span>
          ))}
        </div>
        <svg viewBox={`0 0 ${WIDTH} ${LANE * 2}`} preserveAspectRatio="none" role="img" aria-label={words}>
          {bands.map((s) => {
            const from = Math.max(0, x(s.from));
            return (
              <rect key={s.from} class="band" x={from} y={0} width={x(s.to ?? now) - from} height={LANE * 2}>
                <title>{`no commit for ${span((s.to ?? now) - s.from)}`}</title>
              </rect>
            );
          })}
          {seen.map((b) => {
            const from = Math.max(0, x(b.from));
            return (
              <rect
                key={`${b.cycle.commit_id}/${b.lane}`}
                class={`bar ${b.cycle.outcome} lane${b.lane}`}
                x={from}
                y={b.lane * LANE + 2}
                width={Math.max(LEAST, x(b.to) - from)}
                height={LANE - 4}
              >
                <title>
                  {`${absolute(b.cycle.began)}: ${LANES[b.lane] ?? ""} ${duration(b.to - b.from)}, ` +
                    `${outcomeWords(b.cycle.outcome)}, ${count(b.cycle.landed)} records`}
                </title>
              </rect>
            );
          })}
        </svg>
      </div>
      <div class="axis dim" aria-hidden="true">
        <span>{span(length)} ago</span>
        <span>{span(length / 2)} ago</span>
        <span>now</span>
      </div>
    </section>
  );
}
