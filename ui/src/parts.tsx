// SPDX-License-Identifier: Apache-2.0
/** Parts that the list and a landing's page share. */
import { cloneElement, isValidElement, toChildArray, type ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { dagUrl, follow, taskUrl } from "./airflow";
import type { Landing, Sensor, Topic } from "./api";
import { absolute, ago, bytes, count, many, short } from "./format";
import { Strip } from "./strip";

const SIGNS: Record<string, string> = {
  dead: "✖",
  stalled: "■",
  split: "◆",
  losing: "▼",
  blocked: "▲",
  slowing: "◐",
  unknown: "?",
  healthy: "●",
};
const CALM: Record<string, string> = { "never ran": "○", "first run": "◔", reading: "…" };
export const VERDICTS = Object.keys(SIGNS);
const LATE_SECONDS = 30;

/** The commits do not come through, or somebody has to do something. */
export function troubled(verdict: string): boolean {
  return !["healthy", "unknown"].includes(verdict);
}

export function Verdict({ verdict, word = verdict }: { verdict: string; word?: string }) {
  return (
    <span class={`verdict ${verdict}`}>
      <span aria-hidden="true">{CALM[word] ?? SIGNS[verdict] ?? "?"}</span> {word.toUpperCase()}
    </span>
  );
}

export function Time({ at, now, never = "never" }: { at: string | null; now: number; never?: string }) {
  if (at === null) return <span class="dim">{never}</span>;
  return (
    <time dateTime={at} title={absolute(at)}>
      {ago(at, now)}
    </time>
  );
}

export function AirflowLink({ href, children }: { href: string; children: ComponentChildren }) {
  return (
    <a href={href} onClick={follow}>
      {children}
    </a>
  );
}

/** Names that several landings have: their control topics tell them apart. */
export function equalNames(landings: Landing[]): Set<string> {
  const names = landings.map((l) => l.name);
  return new Set(names.filter((name, i) => names.indexOf(name) !== i));
}

export function Name({ landing, apart = false }: { landing: Landing; apart?: boolean }) {
  const tables = landing.tables.filter((t) => !t.endsWith("_dead_letters"));
  const to = tables.length ? tables : landing.tables;
  return (
    <span class="name">
      <bdi title={landing.name}>{short(landing.name)}</bdi>
      {to.length > 0 && (
        <span class="dim" title={landing.tables.join(", ")}>
          {" → "}
          <bdi>{short(to[0] ?? "", 40)}</bdi>
          {to.length > 1 && ` and ${many(to.length - 1, "more table")}`}
        </span>
      )}
      {apart && (
        <span class="dim">
          {" "}
          (<bdi>{short(`${landing.connection}/${landing.control_topic}`, 40)}</bdi>)
        </span>
      )}
      {landing.kind === "connector" && <span class="dim"> (Kafka Connect)</span>}
    </span>
  );
}

/** The raw text of an error, of which the beginning is seen until it is opened. */
export function Folded({ text, most = 90 }: { text: string; most?: number }) {
  if (text.length <= most) return <>{text}</>;
  return (
    <details class="raw">
      <summary>{text.slice(0, most)}…</summary>
      {text}
    </details>
  );
}

/** The first lines of a card: the state, for how long, whose it is, its last cycles, and what is wrong. */
export function Head({
  landing,
  now,
  level: Level,
  children,
}: {
  landing: Landing;
  now: number;
  level: "h1" | "h2";
  children: ComponentChildren;
}) {
  return (
    <>
      <div class="line">
        <Level>
          <Verdict verdict={landing.verdict} word={landing.word} />{" "}
          {landing.since !== null && (
            <span class="since">
              for <Time at={landing.since} now={now} />
            </span>
          )}{" "}
          {children}
        </Level>
        {landing.cycles.length > 0 && <Strip cycles={landing.cycles} />}
      </div>
      <p class="reason">{landing.headline}</p>
      {landing.warning && <p class="warning">▲ {landing.warning}</p>}
    </>
  );
}

function Answer({ term, children }: { term: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{term}</dt>
      <dd>{children}</dd>
    </div>
  );
}

const HELD_SHOWN = 3;

/** What a person on call asks: why, what waits, who is held, what ends it, what to do, and what if nothing is done. */
export function Answers({
  landing,
  now,
  commands,
  children,
}: {
  landing: Landing;
  now: number;
  commands: number;
  children?: ComponentChildren;
}) {
  const { held } = landing;
  const remedies = landing.remedies.slice(0, commands);
  return (
    <dl class="answers">
      {landing.cause && (
        <Answer term="Why">
          <Folded text={landing.cause} />
        </Answer>
      )}
      <Answer term="Waits">
        <Waits landing={landing} now={now} />
      </Answer>
      {held.waiting + held.ended > 0 && (
        <Answer term="Held">
          {many(held.waiting, "sensor")} waiting, {count(held.ended)} skipped or failed in the last day
          <SensorLinks sensors={held.sensors.slice(0, HELD_SHOWN)} now={now} />
          {held.sensors.length > HELD_SHOWN && (
            <details>
              <summary>{many(held.sensors.length - HELD_SHOWN, "more sensor")}</summary>
              <SensorLinks sensors={held.sensors.slice(HELD_SHOWN)} now={now} />
            </details>
          )}
        </Answer>
      )}
      {landing.clears && <Answer term="Cleared by">{landing.clears}</Answer>}
      {remedies.length > 0 && (
        <Answer term="What to do">
          <ul class="remedies">
            {remedies.map((r) => (
              <li key={r.command}>
                <Command text={r.command} /> <Copy text={r.command} />
                <div class="dim">{r.does}</div>
              </li>
            ))}
          </ul>
        </Answer>
      )}
      {landing.if_nothing && <Answer term="If you do nothing">{landing.if_nothing}</Answer>}
      <Answer term="Last commit">
        <Time at={landing.last_commit} now={now} />
        {landing.last_commit !== null && " ago"}
        {landing.valid_through !== null && (
          <>
            ; the table has all records up to <Time at={landing.valid_through} now={now} /> ago
          </>
        )}
      </Answer>
      {children}
    </dl>
  );
}

/** Records, and the work on them, between the topic and the table. */
function Waits({ landing, now }: { landing: Landing; now: number }) {
  const { read_lag: unread, commit_lag: uncommitted } = landing;
  const parts: ComponentChildren[] = [];
  if (uncommitted !== null && uncommitted > 0) parts.push(`${many(uncommitted, "record")} read and not committed`);
  if (unread !== null && unread > 0) {
    const since = landing.read_lag_since;
    parts.push(
      <>
        {many(unread, "record")} not read
        {since !== null && (
          <>
            {" "}
            for up to <Time at={since} now={now} />
          </>
        )}
      </>,
    );
  }
  const work = pending(landing);
  if (work !== NONE) parts.push(work);
  const unknown = unread === null && uncommitted === null && landing.last_commit !== null;
  if (parts.length === 0) return <>{unknown ? "unknown" : NONE}</>;
  return (
    <>
      {parts.map((part, i) => (
        <span key={i}>
          {i > 0 && " · "}
          {part}
        </span>
      ))}
    </>
  );
}

/** A command that breaks between its words, and not within an option. */
function Command({ text }: { text: string }) {
  return (
    <code>
      {text.split(" ").map((word, i) => (
        <span key={i}>
          {i > 0 && " "}
          <span class="word">{word}</span>
        </span>
      ))}
    </code>
  );
}

function Copy({ text }: { text: string }) {
  const [said, setSaid] = useState("Copy");
  return (
    <button
      type="button"
      onClick={() => {
        navigator.clipboard.writeText(text).then(
          () => {
            setSaid("Copied");
          },
          () => {
            setSaid("Select and copy it");
          },
        );
      }}
    >
      {said}
    </button>
  );
}

export function SensorLinks({ sensors, now }: { sensors: Sensor[]; now: number }) {
  return (
    <ul class="sensors">
      {sensors.map((s) => (
        <li key={`${s.dag}/${s.run}/${s.task}/${s.map_index}`}>
          <AirflowLink href={taskUrl(s.dag, s.run, s.task, s.map_index)}>
            <bdi>{short(`${s.dag}.${s.task}`)}</bdi>
          </AirflowLink>{" "}
          <span class="dim">
            {s.waits ? "waits" : s.state} · <bdi>{short(s.run, 40)}</bdi> · <Time at={s.since} now={now} />
          </span>
        </li>
      ))}
    </ul>
  );
}

export function DagLinks({ dags }: { dags: string[] }) {
  return (
    <span>
      {dags.map((dag, i) => (
        <span key={dag}>
          {i > 0 && ", "}
          <AirflowLink href={dagUrl(dag)}>
            <bdi>{short(dag)}</bdi>
          </AirflowLink>
        </span>
      ))}
    </span>
  );
}

const NONE = "nothing";

/** What waits between the topic and the table, in one line. */
export function pending(landing: Landing): string {
  const full = fullest(landing);
  const parts = [
    landing.pending.slices ? many(landing.pending.slices, "slice") : "",
    landing.pending.files ? many(landing.pending.files, "file") : "",
    landing.pending.bytes ? bytes(landing.pending.bytes) : "",
    full !== null && full.share >= WORTH_TELLING ? `${Math.round(full.share * 100)} % of max_${full.option}` : "",
    landing.blocked ? `${count(landing.blocked)} offsets blocked` : "",
  ].filter(Boolean);
  return parts.join(" · ") || NONE;
}

/** Something that waits, and how much of it may: budgets are for each table. */
export interface Budgeted {
  option: string;
  used: number;
  most: number;
  share: number;
  show: (value: number) => string;
}

const WORTH_TELLING = 0.1;

/** What waits against its budgets, where they are known and limit something; plans of windows come on top. */
export function budgeted(landing: Landing): Budgeted[] {
  const { budget, pending: waits } = landing;
  if (budget === null) return [];
  const rows: [string, number, number | null, (value: number) => string][] = [
    ["open_cycles", landing.open_cycles, budget.open_cycles, count],
    ["pending_slices", waits.slices, budget.slices, count],
    ["pending_files", waits.files_most, budget.files, count],
    ["pending_bytes", waits.bytes, budget.bytes, bytes],
  ];
  return rows.flatMap(([option, used, most, show]) =>
    most === null ? [] : [{ option, used, most, share: used / Math.max(1, most), show }],
  );
}

export function fullest(landing: Landing): Budgeted | null {
  return budgeted(landing).reduce<Budgeted | null>((a, b) => (a === null || b.share > a.share ? b : a), null);
}

/** Records that wait, and since when at the latest. */
export function Lag({ records, since, now }: { records: number | null; since: string | null; now: number }) {
  return (
    <>
      {count(records)}
      {records !== 0 && since !== null && (
        <span class="dim">
          {" · "}
          <Time at={since} now={now} />
        </span>
      )}
    </>
  );
}

/** How fresh what is shown is; it says so where it is not. */
export function Freshness({ topics, now }: { topics: Topic[]; now: number }) {
  return (
    <div class="freshness" role="status">
      {topics.map((t) => {
        const age = t.as_of === null ? null : now - Date.parse(t.as_of) / 1000;
        const stale = t.trouble !== "" || age === null || age > LATE_SECONDS;
        return (
          <div key={`${t.connection}/${t.topic}`} class={stale ? "stale" : ""}>
            <bdi>{short(`${t.connection}/${t.topic}`)}</bdi>:{" "}
            {age === null ? (t.trouble ? "not read yet" : "reading it for the first time …") : null}
            {age !== null && (
              <>
                as of <Time at={t.as_of} now={now} /> ago
              </>
            )}
            {t.trouble && <span> · {t.trouble}</span>}
            {t.overlooked > 0 && <span> · {count(t.overlooked)} records are ignored: the topic has too many groups</span>}
          </div>
        );
      })}
    </div>
  );
}

export function Failure({ error }: { error: string }) {
  return error ? (
    <p class="failure" role="alert">
      The API server reports: {error}. Retrying; the data below is older.
    </p>
  ) : null;
}

/** Each cell with the head of its column: on a phone the heads are not seen, and a row is a list. */
function labelled(rows: ComponentChildren, heads: string[]): ComponentChildren {
  return toChildArray(rows).map((row) => {
    if (!isValidElement(row)) return row;
    const cells = toChildArray(row.props.children).map((cell, i) =>
      isValidElement(cell) ? cloneElement(cell, { "data-label": heads[i]?.replace(/^#/, "") }) : cell,
    );
    return cloneElement(row, {}, cells);
  });
}

/** A table that scrolls by itself where it is wider than the page; heads that begin with `#` are of numbers. */
export function Table({ label, heads, children }: { label: string; heads: string[]; children: ComponentChildren }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead>
          <tr>
            {heads.map((head) => (
              <th key={head} class={head.startsWith("#") ? "number" : ""}>
                {head.replace(/^#/, "")}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{labelled(children, heads)}</tbody>
      </table>
    </div>
  );
}
