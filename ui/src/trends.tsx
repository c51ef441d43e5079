// SPDX-License-Identifier: Apache-2.0
/** What a landing did over hours and days: what was read and committed, how far behind it was, what commits took. */
import { useMemo, useState } from "preact/hooks";
import { trend as fetchTrend } from "./api";
import { Chart } from "./chart";
import { curves } from "./curves";
import { count, duration, rate, span } from "./format";
import { useAnswer } from "./live";

export function Trends({ id, kind }: { id: string; kind: string }) {
  const [chosen, setChosen] = useState(0);
  const { value } = useAnswer(`trend/${id}`, 0, (signal) => fetchTrend(id, signal));
  const steps = value?.steps.filter((s) => s.read.length > 1) ?? [];
  const shown = steps[Math.min(chosen, steps.length - 1)];
  const drawn = useMemo(() => (shown === undefined ? null : curves(shown, kind === "connector")), [shown, kind]);
  if (value === null) return null;
  if (drawn === null) {
    return (
      <section>
        <h2>Over time</h2>
        <p class="dim">Curves appear after two minutes in which records were read or committed.</p>
      </section>
    );
  }
  return (
    <section>
      <h2>
        Over time{" "}
        <span class="filters inline" role="group" aria-label="Time range">
          {steps.map((s, i) => (
            <button
              key={s.step_seconds}
              type="button"
              aria-pressed={s === shown}
              onClick={() => {
                setChosen(i);
              }}
            >
              {span(s.step_seconds * s.read.length)} by {span(s.step_seconds)}
            </button>
          ))}
        </span>
      </h2>
      <div class="charts">
        <Chart title="Records per second" times={drawn.times} series={drawn.rates} show={rate} />
        {drawn.lags.length > 0 && (
          <Chart title="Records behind (maximum)" times={drawn.times} series={drawn.lags} show={count} />
        )}
        {drawn.late.length > 0 && (
          <Chart title="Time behind (maximum)" times={drawn.times} series={drawn.late} show={duration} />
        )}
        {drawn.commits.length > 0 && (
          <Chart
            title="Time to commit what was read (maximum)"
            times={drawn.times}
            series={drawn.commits}
            show={duration}
          />
        )}
      </div>
    </section>
  );
}
