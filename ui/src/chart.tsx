// SPDX-License-Identifier: Apache-2.0
/** A small chart over time. What it draws is also in the table of cycles, so it is hidden from screen readers. */
import { useEffect, useRef, useState } from "preact/hooks";
import "./language";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { onTheme } from "./airflow";
import { clocks } from "./format";

export interface Series {
  label: string;
  colour: string;
  values: (number | null)[];
}

const HEIGHT = 140;

function token(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim() || "gray";
}

export function Chart({
  title,
  times,
  series,
  show,
}: {
  title: string;
  times: number[];
  series: Series[];
  show: (value: number) => string;
}) {
  const place = useRef<HTMLDivElement>(null);
  const [drawn, setDrawn] = useState(0);
  // What is on a canvas keeps its colours.
  useEffect(
    () =>
      onTheme(() => {
        setDrawn((n) => n + 1);
      }),
    [],
  );
  useEffect(() => {
    const element = place.current;
    if (element === null || times.length === 0) return;
    const axis = { stroke: token("--text"), grid: { stroke: token("--line") }, ticks: { stroke: token("--line") } };
    const chart = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { drag: { x: false, y: false } },
        axes: [{ ...axis, values: (_, ticks) => clocks(ticks) }, { ...axis, size: 84, values: (_, ticks) => ticks.map(show) }],
        series: [
          {},
          ...series.map((s) => ({
            label: s.label,
            stroke: token(s.colour),
            width: 2,
            spanGaps: true,
            points: { show: times.length < 60 },
          })),
        ],
      },
      [times, ...series.map((s) => s.values)] as uPlot.AlignedData,
      element,
    );
    const resized = new ResizeObserver(() => {
      chart.setSize({ width: element.clientWidth, height: HEIGHT });
    });
    resized.observe(element);
    return () => {
      resized.disconnect();
      chart.destroy();
    };
  }, [times, series, show, drawn]);
  return (
    <figure class="chart" aria-hidden="true">
      <figcaption>
        {title}
        {series.length > 1 &&
          series.map((s) => (
            <span key={s.label} class={`key ${s.colour.slice(2)}`}>
              {" "}
              ― {s.label}
            </span>
          ))}
      </figcaption>
      <div ref={place} />
    </figure>
  );
}
