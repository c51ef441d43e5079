// SPDX-License-Identifier: Apache-2.0
/** What the buckets of a trend are as curves. */
import type { Steps } from "./api";
import type { Series } from "./chart";

export interface Curves {
  times: number[];
  rates: Series[];
  lags: Series[];
  late: Series[];
  commits: Series[];
}

/** Per second, what was summed in each bucket: buckets of every length are then drawn alike. */
export function curves(steps: Steps, connector: boolean): Curves {
  const begin = Date.parse(steps.begin) / 1000;
  const rate = (values: number[]) => values.map((v) => v / steps.step_seconds);
  const known = (values: (number | null)[]) => values.some((v) => v !== null);
  const lags = [
    { label: "not read", colour: "--warn", values: steps.read_lag },
    { label: "not committed", colour: "--bad", values: steps.commit_lag },
  ];
  const late = [
    { label: "not read", colour: "--warn", values: steps.read_lag_seconds },
    { label: "not in the table", colour: "--bad", values: steps.table_lag_seconds },
  ];
  return {
    times: steps.read.map((_, i) => begin + i * steps.step_seconds),
    rates: [
      { label: connector ? "announced" : "read", colour: "--calm", values: rate(steps.read) },
      { label: "committed", colour: "--good", values: rate(steps.committed) },
    ],
    lags: lags.filter((s) => known(s.values)),
    late: late.filter((s) => known(s.values)),
    commits: known(steps.commit_seconds) ? [{ label: "seconds", colour: "--calm", values: steps.commit_seconds }] : [],
  };
}
