// SPDX-License-Identifier: Apache-2.0
/** All landings and connectors, the worst first: troubled ones as cards, the others as rows. */
import { useEffect, useRef, useState } from "preact/hooks";
import { landings, PAGE_ROWS, type Landing, type Search } from "./api";
import { count } from "./format";
import { useAnswer, useChanges, useNow } from "./live";
import {
  Answers,
  DagLinks,
  equalNames,
  Failure,
  Freshness,
  Head,
  Lag,
  Name,
  pending,
  Table,
  Time,
  troubled,
  Verdict,
  VERDICTS,
} from "./parts";
import { Strip } from "./strip";

/** `opened` is the landing whose page was left just now: the focus goes back to its entry. */
export function List({ dag, opened }: { dag: string; opened: string }) {
  const [search, setSearch] = useState<Search>({ q: "", verdicts: [], dag, offset: 0 });
  const { version, topics } = useChanges();
  const now = useNow();
  const { value, error } = useAnswer(JSON.stringify(search), version, (signal) => landings(search, signal));
  const field = useRef<HTMLInputElement>(null);
  useKeys(field);
  const back = useRef(opened);
  useEffect(() => {
    if (value === null || !back.current) return;
    document.querySelector<HTMLAnchorElement>(`a.entry[href="#/landing/${back.current}"]`)?.focus();
    back.current = "";
  }, [value]);
  const cards = value?.landings.filter((l) => troubled(l.verdict)) ?? [];
  const rows = value?.landings.filter((l) => !troubled(l.verdict)) ?? [];
  const counts = value?.verdicts ?? {};
  const equal = equalNames(value?.landings ?? []);
  return (
    <main>
      <header>
        <h1>Lake commits</h1>
        <div class="filters" role="group" aria-label="Verdicts">
          {VERDICTS.filter((v) => counts[v]).map((v) => (
            <button
              key={v}
              type="button"
              aria-pressed={search.verdicts.includes(v)}
              onClick={() => {
                const on = search.verdicts.includes(v);
                const verdicts = on ? search.verdicts.filter((x) => x !== v) : [...search.verdicts, v];
                setSearch({ ...search, verdicts, offset: 0 });
              }}
            >
              {counts[v]} <Verdict verdict={v} />
            </button>
          ))}
        </div>
        <input
          ref={field}
          type="search"
          placeholder="Search ( / )"
          aria-label="Search by name, table, topic or DAG"
          maxLength={200}
          value={search.q}
          onInput={(e) => {
            setSearch({ ...search, q: e.currentTarget.value, offset: 0 });
          }}
        />
      </header>
      <Freshness topics={topics ?? value?.topics ?? []} now={now} />
      <Failure error={error} />
      {cards.map((l) => (
        <Card key={l.id} landing={l} now={now} apart={equal.has(l.name)} />
      ))}
      {rows.length > 0 && <Rows rows={rows} equal={equal} now={now} />}
      {value !== null && value.total === 0 && <Empty search={search} />}
      {value === null && !error && <p class="dim">Loading …</p>}
      {value !== null && value.total > PAGE_ROWS && (
        <nav class="pages" aria-label="Pages">
          <button
            type="button"
            disabled={search.offset === 0}
            onClick={() => {
              setSearch({ ...search, offset: Math.max(0, search.offset - PAGE_ROWS) });
            }}
          >
            Previous
          </button>
          <span>
            {search.offset + 1}–{Math.min(value.total, search.offset + PAGE_ROWS)} of {value.total}
          </span>
          <button
            type="button"
            disabled={search.offset + PAGE_ROWS >= value.total}
            onClick={() => {
              setSearch({ ...search, offset: search.offset + PAGE_ROWS });
            }}
          >
            Next
          </button>
        </nav>
      )}
    </main>
  );
}

function Card({ landing, now, apart }: { landing: Landing; now: number; apart: boolean }) {
  return (
    <section class={`card ${landing.verdict}`} aria-label={`${landing.name} is ${landing.verdict}`}>
      <Head landing={landing} now={now} level="h2">
        <a class="entry" href={`#/landing/${landing.id}`}>
          <Name landing={landing} apart={apart} />
        </a>
      </Head>
      <Answers landing={landing} now={now} commands={1}>
        {landing.dags.length > 0 && (
          <div>
            <dt>DAG</dt>
            <dd>
              <DagLinks dags={landing.dags} />
            </dd>
          </div>
        )}
      </Answers>
    </section>
  );
}

const HEADS = [
  ...["landing", "verdict", "cycles", "#not read"],
  ...["#not committed", "#last commit", "#pending", "#rejected 24 h"],
];

function Rows({ rows, equal, now }: { rows: Landing[]; equal: Set<string>; now: number }) {
  return (
    <Table
      label="Landings and connectors"
      heads={HEADS}
    >
      {rows.map((l) => (
        <tr key={l.id}>
          <td>
            <a class="entry" href={`#/landing/${l.id}`}>
              <Name landing={l} apart={equal.has(l.name)} />
            </a>
          </td>
          <td>
            <Verdict verdict={l.verdict} word={l.word} />
            {l.verdict === "unknown" && <div class="dim why">{l.headline}</div>}
            {l.warning && <div class="warning why">▲ {l.warning}</div>}
          </td>
          <td class="wide">
            <Strip cycles={l.cycles} />
          </td>
          <td class="number">
            <Lag records={l.read_lag} since={l.read_lag_since} now={now} />
          </td>
          <td class="number">{count(l.commit_lag)}</td>
          <td class="number">
            <Time at={l.last_commit} now={now} />
          </td>
          <td class="number wide">{pending(l)}</td>
          <td class="number">{l.kind === "landing" ? count(l.rejected_24h) : "–"}</td>
        </tr>
      ))}
    </Table>
  );
}

function Empty({ search }: { search: Search }) {
  if (search.q || search.verdicts.length) return <p>No landing matches.</p>;
  if (search.dag) return <p>This DAG has no known landing: it declares none, or Airflow has not parsed it yet.</p>;
  return (
    <p>
      These control topics have no landing that you may see. A landing appears when Airflow has parsed its DAG. To watch
      other control topics, set <code>page_topics</code> in the section <code>[lakecommit]</code>.
    </p>
  );
}

/** / searches, j and k move through the entries, Enter opens as links do. */
function useKeys(field: { current: HTMLInputElement | null }): void {
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (event.target instanceof HTMLInputElement || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "/") {
        event.preventDefault();
        field.current?.focus();
      }
      if (event.key !== "j" && event.key !== "k") return;
      const entries = [...document.querySelectorAll<HTMLAnchorElement>("a.entry")];
      const at = entries.findIndex((e) => e === document.activeElement);
      const next = event.key === "j" ? at + 1 : Math.max(0, at - 1);
      entries[Math.min(next, entries.length - 1)]?.focus();
    };
    document.addEventListener("keydown", pressed);
    return () => {
      document.removeEventListener("keydown", pressed);
    };
  }, [field]);
}
