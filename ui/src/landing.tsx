// SPDX-License-Identifier: Apache-2.0
/** One landing or connector: how it stands, what helps, how far its partitions are, and its cycles. */
import { useEffect, useRef } from "preact/hooks";
import { Actions } from "./actions";
import { runUrl } from "./airflow";
import { Accounting } from "./account";
import { landing as fetchLanding, type Cycle, type Detail, type Partition } from "./api";
import { causes } from "./causes";
import { ConnectorParts } from "./connector";
import { bytes, count, duration, many, short } from "./format";
import { useAnswer, useChanges, useNow } from "./live";
import { Decisions, Rejects } from "./notes";
import {
  AirflowLink,
  Answers,
  budgeted,
  DagLinks,
  Failure,
  Folded,
  Freshness,
  Head,
  Name,
  Table,
  Time,
} from "./parts";
import { outcomeWords } from "./strip";
import { Timeline } from "./timeline";
import { Trends } from "./trends";
import { Windows } from "./windows";

const MOST_PARTITIONS = 100;

export function LandingPage({ id }: { id: string }) {
  const { version, topics } = useChanges();
  const now = useNow();
  const { value, error } = useAnswer(id, version, (signal) => fetchLanding(id, signal));
  const page = useRef<HTMLElement>(null);
  useEffect(() => {
    // What had the focus is gone with the list.
    page.current?.focus({ preventScroll: true });
  }, []);
  const own = topics?.filter((t) => t.topic === value?.control_topic && t.connection === value.connection);
  return (
    <main ref={page} tabIndex={-1}>
      <nav>
        <a href="#/">← all landings</a>
      </nav>
      <Failure error={error} />
      {value === null && !error && <p class="dim">Loading …</p>}
      {own && <Freshness topics={own} now={now} />}
      {value !== null && <Body landing={value} now={now} />}
    </main>
  );
}

function Body({ landing, now }: { landing: Detail; now: number }) {
  return (
    <>
      <section class={`card ${landing.verdict}`}>
        <Head landing={landing} now={now} level="h1">
          <Name landing={landing} />
        </Head>
        <Answers landing={landing} now={now} commands={landing.remedies.length}>
          <div>
            <dt>From</dt>
            <dd>
              {landing.topics.join(", ") || "topics that are known from the first run on"}
              {landing.dags.length > 0 && (
                <>
                  {" by DAG "}
                  <DagLinks dags={landing.dags} />
                </>
              )}
              {landing.control_topic && (
                <>
                  , control topic <bdi>{landing.control_topic}</bdi>
                </>
              )}
            </dd>
          </div>
        </Answers>
      </section>
      <Blocked ranges={landing.blocked_ranges} now={now} />
      <Failures cycles={landing.history} now={now} />
      <Actions landing={landing} now={now} />
      <Timeline cycles={landing.history} now={now} />
      <Windows landing={landing} now={now} />
      <Waiting landing={landing} />
      <Trends id={landing.id} kind={landing.kind} />
      <ConnectorParts landing={landing} now={now} />
      <Partitions partitions={landing.partitions} />
      <Rejects rejects={landing.rejects} now={now} />
      <Decisions decisions={landing.decisions} />
      <History landing={landing} now={now} />
    </>
  );
}

function Blocked({ ranges, now }: { ranges: Detail["blocked_ranges"]; now: number }) {
  if (ranges.length === 0) return null;
  return (
    <section>
      <h2>Blocked ranges by kind</h2>
      <Table label="Blocked ranges by kind" heads={["kind", "#offsets", "#ranges", "since", "offsets", "reason"]}>
        {ranges.map((b) => (
          <tr key={b.kind}>
            <td>
              <bdi>{short(b.kind)}</bdi>
            </td>
            <td class="number">{count(b.offsets)}</td>
            <td class="number">{count(b.parts)}</td>
            <td class="time">
              <Time at={b.since} now={now} /> ago
            </td>
            <td class="remark">
              <bdi>
                <Folded text={b.ranges} most={60} />
              </bdi>
            </td>
            <td class="remark">
              <Folded text={b.reason} />
            </td>
          </tr>
        ))}
      </Table>
    </section>
  );
}

function Failures({ cycles, now }: { cycles: Cycle[]; now: number }) {
  const found = causes(cycles);
  if (found.length === 0) return null;
  return (
    <section>
      <h2>Why commits fail</h2>
      <Table label="Why commits fail" heads={["cause", "#cycles", "newest cycle began"]}>
        {found.map((c) => (
          <tr key={c.text}>
            <td class="remark">
              <Folded text={c.text} />
            </td>
            <td class="number">{count(c.cycles)}</td>
            <td class="time">
              <Time at={c.last} now={now} /> ago
            </td>
          </tr>
        ))}
      </Table>
    </section>
  );
}

function Waiting({ landing }: { landing: Detail }) {
  const rows = budgeted(landing);
  if (rows.length === 0 && landing.debt === null) return null;
  return (
    <section>
      <h2>Pending work</h2>
      <Table label="Pending work, by budget" heads={["budget", "used", "#pending", "#limit"]}>
        {rows.map((b) => (
          <tr key={b.option}>
            <td>
              <code>max_{b.option}</code>
            </td>
            <td>
              <meter min={0} max={1} value={Math.min(1, b.share)} aria-label={`${Math.round(b.share * 100)} percent`} />
            </td>
            <td class="number">{b.show(b.used)}</td>
            <td class="number">{b.show(b.most)}</td>
          </tr>
        ))}
        {landing.debt !== null && (
          <tr>
            <td>compaction debt at the newest commit; nothing is read from 200 % on</td>
            <td>
              <meter min={0} max={2} value={Math.min(2, landing.debt)} aria-label={percent(landing.debt)} />
            </td>
            <td class="number">{percent(landing.debt)}</td>
            <td class="number">{percent(2)}</td>
          </tr>
        )}
      </Table>
    </section>
  );
}

function percent(share: number): string {
  return `${Math.round(share * 100)} %`;
}

function lag(p: Partition): number {
  return p.lag ?? 0;
}

function Partitions({ partitions }: { partitions: Partition[] }) {
  if (partitions.length === 0) return null;
  const hottest = [...partitions].sort((a, b) => lag(b) - lag(a)).slice(0, MOST_PARTITIONS);
  const most = Math.max(1, ...hottest.map(lag));
  const hot = partitions.filter((p) => p.hot).length;
  return (
    <section>
      <h2>Partitions</h2>
      {hot > 0 && (
        <p>
          {hot === 1 ? "One partition is" : `${hot} partitions are`} several times further behind than the others.
        </p>
      )}
      <Table
        label="Partitions, furthest behind first"
        heads={["partition", "behind", "#not read", "#not committed", "#committed up to", "#end"]}
      >
        {hottest.map((p) => (
          <tr key={p.partition} class={p.hot ? "hot" : ""}>
            <td>
              <bdi>{short(p.partition, 40)}</bdi>
              {p.hot && <strong> far behind</strong>}
            </td>
            <td>
              <meter min={0} max={most} value={lag(p)} aria-label={`${lag(p)} records behind`} />
            </td>
            <td class="number">
              {p.stable === null ? "–" : count(Math.max(0, p.stable - (p.reported ?? p.landed ?? 0)))}
            </td>
            <td class="number">
              {p.reported === null ? "–" : count(Math.max(0, p.reported - (p.landed ?? 0)))}
            </td>
            <td class="number">{p.landed?.toLocaleString() ?? "–"}</td>
            <td class="number">{p.stable?.toLocaleString() ?? "–"}</td>
          </tr>
        ))}
      </Table>
      {partitions.length > MOST_PARTITIONS && (
        <p class="dim">
          Showing {MOST_PARTITIONS} of {partitions.length}.
        </p>
      )}
    </section>
  );
}

/** What there is to say of a cycle beside its error, the trouble first. */
export function remark(c: Cycle): string {
  const slices = c.slices ? `${c.slices_done} of ${c.slices} slices` : "";
  const trouble = c.slices_troubled ? `${many(c.slices_troubled, "slice")} over budget or failed` : "";
  const redundant = c.redundant ? many(c.redundant, "redundant report") : "";
  const again = c.failures > 1 ? `${c.failures} commit attempts failed` : "";
  const left = c.left ? `${count(c.left)} left for the next cycle` : "";
  return [trouble, again, c.end_asked, slices, redundant, left].filter(Boolean).join(" · ");
}

function History({ landing, now }: { landing: Detail; now: number }) {
  if (landing.history.length === 0) return null;
  return (
    <section>
      <h2>Cycles</h2>
      <Table
        label="Cycles, newest first"
        heads={["began", "outcome", "#records", "#rejected", "#files", "#bytes", "#took", "run", "notes"]}
      >
        {landing.history.map((c) => (
          <tr key={c.commit_id}>
            <td class="time">
              <Time at={c.began} now={now} /> ago
            </td>
            <td class={`outcome ${c.outcome}`}>{outcomeWords(c.outcome)}</td>
            <td class="number">{count(c.landed)}</td>
            <td class="number">{count(c.rejected)}</td>
            <td class="number">{count(c.files)}</td>
            <td class="number">{c.bytes ? bytes(c.bytes) : "–"}</td>
            <td class="number">
              {c.ended === null ? "–" : duration((Date.parse(c.ended) - Date.parse(c.began)) / 1000)}
            </td>
            <td>
              {landing.dags.includes(c.dag) ? (
                <AirflowLink href={runUrl(c.dag, c.run)}>
                  <bdi>{short(c.run, 32)}</bdi>
                </AirflowLink>
              ) : (
                <bdi class="dim" title={c.run}>
                  {short(c.run, 32)}
                </bdi>
              )}
            </td>
            <td class="remark">
              {remark(c)}
              {[c.failed, c.reason].filter(Boolean).map((text) => (
                <div key={text}>
                  <Folded text={text} most={60} />
                </div>
              ))}
              {c.read > 0 && (
                <details>
                  <summary>accounting</summary>
                  <Accounting account={c} rows={c.rows} planned={c.planned} />
                </details>
              )}
            </td>
          </tr>
        ))}
      </Table>
    </section>
  );
}
