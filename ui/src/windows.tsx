// SPDX-License-Identifier: Apache-2.0
/** Open windows: their groups with a cell for each slice, how fast they go, and how long it may take. */
import { runUrl } from "./airflow";
import { Accounting } from "./account";
import type { Detail, Group, Slice, SliceOutcome, Window } from "./api";
import { bytes, count, duration, many, rate, short, span } from "./format";
import { AirflowLink, Folded, Table, Time } from "./parts";

const WORDS: Record<SliceOutcome, string> = {
  waiting: "waiting",
  done: "reported",
  part: "partly reported",
  blocked: "over budget",
  failed: "failed",
};
const SIGNS: Record<SliceOutcome, string> = { waiting: "", done: "✓", part: "½", blocked: "!", failed: "✖" };
const MOST_ROWS = 100;

/** Offsets a second since it began, and the seconds that are left at that; none, while nothing tells. */
export function pace(w: Window, now: number): { rate: number; left: number } | null {
  const took = now - Date.parse(w.began) / 1000;
  if (w.read === 0 || took <= 0) return null;
  const rate = w.read / took;
  return { rate, left: Math.max(0, w.planned - w.read) / rate };
}

export function Windows({ landing, now }: { landing: Detail; now: number }) {
  if (landing.windows.length === 0) return null;
  return (
    <section>
      <h2>Open windows</h2>
      {landing.windows.map((w) => (
        <WindowCard key={w.commit_id} window={w} known={landing.cause} own={landing.dags.includes(w.dag)} now={now} />
      ))}
    </section>
  );
}

function WindowCard({ window: w, known, own, now }: { window: Window; known: string; own: boolean; now: number }) {
  const whole = w.slices_done >= w.slices_total;
  const going = whole ? null : pace(w, now);
  const run = <bdi title={w.run}>{short(w.run, 40)}</bdi>;
  return (
    <article class="window">
      <p>
        <strong>
          {w.slices_done} of {many(w.slices_total, "slice")}
        </strong>{" "}
        {whole && "read, waits for its commit "}· {own ? <AirflowLink href={runUrl(w.dag, w.run)}>{run}</AirflowLink> : run} · began <Time at={w.began} now={now} />{" "}
        ago
        {going !== null && ` · ${rate(going.rate)} offsets/s`}
        {going !== null && going.left > 0 && ` · about ${span(going.left)} left`}
        {w.bytes > 0 && ` · ${bytes(w.bytes)}`}
        {w.redundant > 0 && ` · ${many(w.redundant, "redundant report")}`}
      </p>
      {w.failed && w.failed !== known && (
        <p class="reason">
          <Folded text={w.failed} />
        </p>
      )}
      {w.end_asked && <p class="dim">Ends early: {w.end_asked}.</p>}
      <Accounting account={w} rows={w.rows} planned={w.planned} />
      <ul class="groups">
        {w.groups.map((g) => (
          <GroupRow key={g.group} group={g} slices={w.slices.filter((s) => s.group === g.group)} now={now} />
        ))}
      </ul>
      <details>
        <summary>Slice by slice</summary>
        <Slices slices={w.slices} now={now} />
      </details>
    </article>
  );
}

function GroupRow({ group: g, slices, now }: { group: Group; slices: Slice[]; now: number }) {
  const name = g.group < 0 ? "split again" : `group ${g.group}`;
  return (
    <li>
      <span class="group">{name}</span>
      <span class="cells" role="img" aria-label={`${g.slices_done} of ${g.slices} slices of ${name} are reported`}>
        {slices.map((s) => (
          <span key={s.slice_id} class={`cell ${s.outcome}`} title={`${s.ranges.join(" ")}: ${WORDS[s.outcome]}`}>
            {SIGNS[s.outcome]}
          </span>
        ))}
      </span>
      <span class="dim">
        {g.slices_done} of {g.slices} · {count(g.read)} of {count(g.offsets)} offsets
        {g.bytes > 0 && ` · ${bytes(g.bytes)}`}
        {g.slices_troubled > 0 && ` · ${g.slices_troubled} with errors`}
        {g.redundant > 0 && ` · ${g.redundant} redundant`} ·{" "}
        {g.reported === null ? (
          "no report yet"
        ) : (
          <>
            last report <Time at={g.reported} now={now} /> ago
          </>
        )}
      </span>
    </li>
  );
}

const HEADS = [
  ...["group", "ranges", "state", "#offsets", "#rows"],
  ...["#rejected", "#bytes", "#work", "#reported", "by attempt"],
];

function Slices({ slices, now }: { slices: Slice[]; now: number }) {
  return (
    <>
      <Table
        label="Slices, errors first"
        heads={HEADS}
      >
        {slices.slice(0, MOST_ROWS).map((s) => (
          <tr key={s.slice_id}>
            <td>{s.group < 0 ? "–" : s.group}</td>
            <td class="ranges">
              <bdi>{short(s.ranges.join(" "), 80)}</bdi>
            </td>
            <td>
              {WORDS[s.outcome]}
              {s.reason && `: ${s.reason}`}
            </td>
            <td class="number">{count(s.offsets)}</td>
            <td class="number">{s.reports ? count(s.rows) : "–"}</td>
            <td class="number">{s.reports ? count(s.rejected) : "–"}</td>
            <td class="number">{s.bytes ? bytes(s.bytes) : "–"}</td>
            <td class="number">{s.seconds === null ? "–" : duration(s.seconds)}</td>
            <td class="number">
              {s.reported === null ? "–" : <Time at={s.reported} now={now} />}
            </td>
            <td>
              {s.attempt}
              {s.reports > 1 && ` (${s.reports} reports)`}
            </td>
          </tr>
        ))}
      </Table>
      {slices.length > MOST_ROWS && <p class="dim">{`Showing ${MOST_ROWS} of ${slices.length}.`}</p>}
    </>
  );
}
