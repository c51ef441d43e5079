// SPDX-License-Identifier: Apache-2.0
/** Numbers and times as people read them. */

const SI = ["", "k", "M", "G", "T", "P"];
const IEC = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const SPANS: [number, string][] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
  [1, "s"],
];

function scaled(value: number, base: number, units: string[]): string {
  let step = 0;
  let left = value;
  while (Math.abs(left) >= (base === 1000 ? 999.5 : 1023.5) && step < units.length - 1) {
    left /= base;
    step += 1;
  }
  const digits = step === 0 || left >= 100 ? 0 : 1;
  return `${left.toFixed(digits)} ${units[step] ?? ""}`.trim();
}

/** 1234567 is "1.2 M"; what is not known is a dash. */
export function count(value: number | null): string {
  return value === null ? "–" : scaled(value, 1000, SI);
}

/** The same, with tenths below ten: what happens less than once a second is not nothing. */
export function rate(value: number): string {
  return value < 9.95 && !Number.isInteger(value) ? value.toFixed(1) : count(value);
}

/** "1 slice", "2 slices". */
export function many(value: number, what: string): string {
  return `${count(value)} ${what}${value === 1 ? "" : "s"}`;
}

export function bytes(value: number): string {
  return scaled(value, 1024, IEC);
}

/** A time span by its largest unit, and the next one where it is below ten of it: "14 min", "2 h 5 min", "3 d". */
export function span(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  for (const [index, [length, unit]] of SPANS.entries()) {
    if (whole < length) continue;
    const next = SPANS[index + 1];
    const major = Math.floor(whole / length);
    const rest = next === undefined ? 0 : Math.floor((whole - major * length) / next[0]);
    return next !== undefined && major < 10 && rest > 0 ? `${major} ${unit} ${rest} ${next[1]}` : `${major} ${unit}`;
  }
  return "0 s";
}

/** How long something took: milliseconds below a second, tenths below ten. */
export function duration(seconds: number): string {
  if (seconds > 0 && seconds < 0.9995) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  return seconds < 10 ? `${Math.max(0, seconds).toFixed(1)} s` : span(seconds);
}

export function ago(time: string | null, now: number): string {
  return time === null ? "never" : span(now - Date.parse(time) / 1000);
}

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

const SECONDS = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

/** Marks of a time axis, in the user's own zone: the day is told at the first, and where another one begins. */
export function clocks(times: number[]): string[] {
  const clock = (times[1] ?? Infinity) - (times[0] ?? 0) < 60 ? SECONDS : CLOCK;
  let known = "";
  return times.map((seconds) => {
    const at = new Date(seconds * 1000);
    const day = DAY.format(at);
    const told = day === known ? clock.format(at) : `${clock.format(at)}\n${day}`;
    known = day;
    return told;
  });
}

/** In the user's own zone, for a title. */
export function absolute(time: string | null): string {
  return time === null ? "unknown" : new Date(time).toLocaleString(undefined, { timeZoneName: "short" });
}

/** A long name in the middle of a line: its two ends tell it from others. */
export function short(text: string, most = 60): string {
  const half = Math.floor((most - 1) / 2);
  return text.length <= most ? text : `${text.slice(0, half)}…${text.slice(-half)}`;
}
