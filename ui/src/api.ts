// SPDX-License-Identifier: Apache-2.0
/** The status API, version 1, as `page/answers.py` defines it; times are ISO 8601 in UTC, `null` is "unknown". */

export type Outcome = "running" | "complete" | "partial" | "failed" | "empty" | "refused" | "blocked" | "left";

export interface Topic {
  connection: string;
  topic: string;
  as_of: string | null;
  trouble: string;
  overlooked: number;
}

export interface CycleMark {
  commit_id: string;
  began: string;
  outcome: Outcome;
  landed: number;
  files: number;
}

/** What was read, in source offsets, and what became of it: the sum of all the others. */
export interface Account {
  read: number;
  landed: number;
  rejected: number;
  filtered: number;
  gaps: number;
  skipped: number;
  /** Of a landing with `upsert`: records that a newer one of the window replaced, and records that delete a row. */
  superseded: number;
  deleted: number;
}

export interface Cycle extends Account, CycleMark {
  written: string | null;
  ended: string | null;
  dag: string;
  run: string;
  tables: string[];
  planned: number;
  groups: number;
  slices: number;
  slices_done: number;
  slices_troubled: number;
  redundant: number;
  rows: Record<string, number>;
  bytes: number;
  left: number;
  reason: string;
  failures: number;
  failed: string;
  end_asked: string;
}

export interface Sensor {
  dag: string;
  run: string;
  task: string;
  map_index: number;
  state: string;
  waits: boolean;
  since: string | null;
  reason: string;
}

/** How much may be under way or wait, in each table; `null` is no limit. */
export interface Budget {
  open_cycles: number | null;
  slices: number | null;
  files: number | null;
  bytes: number | null;
}

export interface Landing {
  id: string;
  kind: "landing" | "connector";
  name: string;
  connection: string;
  control_topic: string;
  verdict: string;
  /** The state in one word or two, in one line, and in the raw text of an error. */
  word: string;
  headline: string;
  cause: string;
  reason: string;
  clears: string;
  if_nothing: string;
  /** Worth a look, though the state is calm. */
  warning: string;
  since: string | null;
  never_ran: boolean;
  last_commit: string | null;
  valid_through: string | null;
  read_lag: number | null;
  commit_lag: number | null;
  /** Since when records wait to be read, and since when the table lacks some, at the latest. */
  read_lag_since: string | null;
  table_lag_since: string | null;
  pending: { slices: number; files: number; files_most: number; bytes: number };
  budget: Budget | null;
  debt: number | null;
  open_cycles: number;
  blocked: number;
  rejected_24h: number;
  topics: string[];
  tables: string[];
  dags: string[];
  held: { waiting: number; ended: number; sensors: Sensor[] };
  remedies: { command: string; does: string }[];
  cycles: CycleMark[];
}

export interface Partition {
  partition: string;
  landed: number | null;
  reported: number | null;
  stable: number | null;
  lag: number | null;
  planned: number | null;
  hot: boolean;
}

export type SliceOutcome = "waiting" | "done" | "part" | "blocked" | "failed";

export interface Slice extends Account {
  slice_id: string;
  group: number;
  outcome: SliceOutcome;
  ranges: string[];
  offsets: number;
  reports: number;
  attempt: string;
  reported: string | null;
  rows: number;
  files: number;
  bytes: number;
  seconds: number | null;
  reason: string;
}

export interface Group {
  group: number;
  slices: number;
  slices_done: number;
  slices_troubled: number;
  offsets: number;
  read: number;
  bytes: number;
  redundant: number;
  reported: string | null;
}

/** A window under way. */
export interface Window extends Account {
  commit_id: string;
  began: string;
  dag: string;
  run: string;
  planned: number;
  slices_total: number;
  slices_done: number;
  redundant: number;
  rows: Record<string, number>;
  bytes: number;
  failed: string;
  end_asked: string;
  groups: Group[];
  slices: Slice[];
}

export interface ConnectorTask {
  id: string;
  since: string;
  at: string;
  answers: number;
  partitions: string[];
  silent: boolean;
}

export interface Announced {
  table: string;
  files: number;
  since: string;
  passed_over: boolean;
}

/** A ring of buckets of the same length; of what is not known there is no value. */
export interface Steps {
  step_seconds: number;
  begin: string;
  read: number[];
  committed: number[];
  read_lag: (number | null)[];
  commit_lag: (number | null)[];
  read_lag_seconds: (number | null)[];
  table_lag_seconds: (number | null)[];
  commit_seconds: (number | null)[];
}

export interface Trend {
  steps: Steps[];
}

export interface Detail extends Landing {
  spec_version: string;
  partitions: Partition[];
  windows: Window[];
  tasks: ConnectorTask[];
  announced: Announced[];
  /** The largest first. */
  blocked_ranges: { kind: string; ranges: string; parts: number; offsets: number; since: string; reason: string }[];
  /** The newest first, as are rejects. */
  decisions: { at: string; command: string; actor: string; host: string; reason: string; what: string }[];
  rejects: { kind: string; records: number; since: string; at: string; ranges: string[]; reason: string }[];
  history: Cycle[];
}

/** What may be asked of Airflow: pause and unpause DAGs, then run one; `hindrance` is why not. */
export interface Action {
  kind: string;
  does: string;
  now: string;
  dag: string;
  conf: Record<string, string>;
  pauses: string[];
  unpauses: string[];
  asks: boolean;
  hindrance: string;
}

export interface ActionList {
  enabled: boolean;
  actions: Action[];
}

export interface List {
  version: number;
  topics: Topic[];
  verdicts: Record<string, number>;
  total: number;
  offset: number;
  landings: Landing[];
}

export interface Change {
  version: number;
  topics: Topic[];
}

export interface Search {
  q: string;
  verdicts: string[];
  dag: string;
  offset: number;
}

export const PAGE_ROWS = 50;

/** What the server said, in its words where it has some. */
export class ServerError extends Error {
  constructor(
    readonly status: number,
    text: string,
  ) {
    super(text);
  }
}

/** The `detail` of an answer that is an error, or all that it says. */
export function detailOf(said: string): string {
  try {
    const stated = (JSON.parse(said) as { detail?: unknown }).detail;
    if (typeof stated === "string") return stated;
  } catch {
    // Not JSON: a proxy's word.
  }
  return said;
}

async function get<T>(path: string, signal: AbortSignal): Promise<T> {
  // The browser's cache holds the last answer and its ETag: what has not changed is not sent again.
  const answer = await fetch(path, { signal, headers: { Accept: "application/json" } });
  if (!answer.ok) {
    throw new ServerError(answer.status, detailOf(await answer.text()).slice(0, 500) || answer.statusText || `HTTP ${answer.status}`);
  }
  return (await answer.json()) as T;
}

export function landings(search: Search, signal: AbortSignal): Promise<List> {
  const query = new URLSearchParams({ limit: String(PAGE_ROWS), offset: String(search.offset) });
  if (search.q) query.set("q", search.q);
  if (search.dag) query.set("dag_id", search.dag);
  for (const verdict of search.verdicts) query.append("verdict", verdict);
  return get<List>(`api/v1/landings?${query.toString()}`, signal);
}

export function landing(id: string, signal: AbortSignal): Promise<Detail> {
  return get<Detail>(`api/v1/landings/${encodeURIComponent(id)}`, signal);
}

export function trend(id: string, signal: AbortSignal): Promise<Trend> {
  return get<Trend>(`api/v1/landings/${encodeURIComponent(id)}/trend`, signal);
}

export function actions(id: string, signal: AbortSignal): Promise<ActionList> {
  return get<ActionList>(`api/v1/landings/${encodeURIComponent(id)}/actions`, signal);
}
