// SPDX-License-Identifier: Apache-2.0
/** What is worth knowing beyond the cycles: the plan explained, dead letters by kind, decisions by hand, specs. */
import type { ComponentChildren } from "preact";
import { runUrl, taskUrl } from "./airflow";
import { notes as fetchNotes, type Detail, type Notes } from "./api";
import { count, short } from "./format";
import { useAnswer } from "./live";
import { AirflowLink, Table, Time } from "./parts";
import { DeadLetters } from "./samples";

/** Seconds after which it is asked for again. */
const EVERY = 15;

export function LandingNotes({ landing, now }: { landing: Detail; now: number }) {
  const { value } = useAnswer(`notes/${landing.id}`, Math.floor(now / EVERY), (signal) =>
    fetchNotes(landing.id, signal),
  );
  if (value === null || landing.kind === "connector") return null;
  return <Shown notes={value} landing={landing} now={now} />;
}

export function Shown({ notes, landing, now }: { notes: Notes; landing: Detail; now: number }) {
  return (
    <>
      <Explained plan={notes.plan} now={now} />
      <Rejects rejects={notes.rejects} now={now} />
      <DeadLetters samples={notes.samples} counted={notes.rejects.length > 0} now={now} />
      <Decisions decisions={notes.decisions} />
      <Specs specs={notes.specs} dags={landing.dags} now={now} />
    </>
  );
}

function Explained({ plan, now }: { plan: Notes["plan"]; now: number }) {
  if (plan === null) return null;
  return (
    <section>
      <details>
        <summary>
          <h2 class="inline">The newest plan explained</h2>
        </summary>
        <p class="dim">
          <AirflowLink href={taskUrl(plan.dag, plan.run, plan.task, -1)}>
            <bdi>{short(plan.run, 40)}</bdi>
          </AirflowLink>
          , <Time at={plan.at} now={now} /> ago
        </p>
        <ul class="lines">
          {plan.lines.map((line, n) => (
            <li key={n}>{line}</li>
          ))}
        </ul>
      </details>
    </section>
  );
}

function Part({ label, heads, children }: { label: string; heads: string[]; children: ComponentChildren }) {
  return (
    <section>
      <h2>{label}</h2>
      <Table label={label} heads={heads}>
        {children}
      </Table>
    </section>
  );
}

function Rejects({ rejects, now }: { rejects: Notes["rejects"]; now: number }) {
  if (rejects.length === 0) return null;
  return (
    <Part label="Dead letters by kind" heads={["kind", "#records", "last", "since", "newest where", "told as"]}>
      {rejects.map((r) => (
        <tr key={r.kind}>
          <td>
            <bdi>{short(r.kind, 60)}</bdi>
          </td>
          <td class="number">{count(r.records)}</td>
          <td>
            <Time at={r.at} now={now} /> ago
          </td>
          <td>
            <Time at={r.since} now={now} /> ago
          </td>
          <td>{r.ranges.join(", ")}</td>
          <td class="remark">{r.reason}</td>
        </tr>
      ))}
    </Part>
  );
}

function Decisions({ decisions }: { decisions: Notes["decisions"] }) {
  if (decisions.length === 0) return null;
  return (
    <Part label="Decided by hand" heads={["at", "command", "who", "what", "why"]}>
      {decisions.map((d) => (
        <tr key={d.at + d.command}>
          <td>{d.at}</td>
          <td>
            <code>{d.command}</code>
          </td>
          <td>
            <bdi>{short(d.actor, 40)}</bdi> on <bdi>{short(d.host, 40)}</bdi>
          </td>
          <td class="remark">{d.what}</td>
          <td class="remark">{d.reason || "no reason given"}</td>
        </tr>
      ))}
    </Part>
  );
}

function Specs({ specs, dags, now }: { specs: Notes["specs"]; dags: string[]; now: number }) {
  if (specs.length === 0) return null;
  return (
    <Part label="Versions of the spec" heads={["version", "since", "first planned by"]}>
      {specs.map((s) => (
        <tr key={s.version + s.since}>
          <td>
            <code>{short(s.version, 16)}</code>
          </td>
          <td>
            <Time at={s.since} now={now} /> ago
          </td>
          <td>
            {dags.includes(s.dag) ? (
              <AirflowLink href={runUrl(s.dag, s.run)}>
                <bdi>{short(s.run, 40)}</bdi>
              </AirflowLink>
            ) : (
              <bdi class="dim">{short(s.run, 40)}</bdi>
            )}
          </td>
        </tr>
      ))}
    </Part>
  );
}
