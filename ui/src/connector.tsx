// SPDX-License-Identifier: Apache-2.0
/** A Kafka Connect sink by its control topic alone: the tasks that answer, and the files that wait. */
import type { Detail } from "./api";
import { count, many, short } from "./format";
import { Table, Time } from "./parts";

const MOST_PARTITIONS = 12;

export function ConnectorParts({ landing, now }: { landing: Detail; now: number }) {
  if (landing.kind !== "connector") return null;
  return (
    <>
      <Announced landing={landing} now={now} />
      <Tasks landing={landing} now={now} />
    </>
  );
}

function Announced({ landing, now }: { landing: Detail; now: number }) {
  return (
    <section>
      <h2>Uncommitted files</h2>
      {landing.announced.length === 0 && <p class="dim">All announced files are committed.</p>}
      <ul class="announced">
        {landing.announced.map((a) => (
          <li key={`${a.table}/${a.passed_over}`} class={a.passed_over ? "over" : ""}>
            {many(a.files, "file")} for <bdi>{a.table}</bdi>, since <Time at={a.since} now={now} />
            {a.passed_over ? ": a commit completed without them" : ": they wait for the next commit"}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Tasks({ landing, now }: { landing: Detail; now: number }) {
  return (
    <section>
      <h2>Tasks</h2>
      {landing.tasks.length === 0 && <p class="dim">No task has answered its coordinator yet.</p>}
      {landing.tasks.length > 0 && (
        <Table
          label="Tasks of the connector"
          heads={["task id", "#last answer", "#since", "#answers", "partitions of the last answer"]}
        >
          {landing.tasks.map((t) => (
            <tr key={t.id} class={t.silent ? "silent" : ""}>
              <td>
                <bdi title={t.id}>{short(t.id, 40) || "no id"}</bdi>
                {t.silent && <strong> silent: ended or stuck</strong>}
              </td>
              <td class="number">
                <Time at={t.at} now={now} />
              </td>
              <td class="number">
                <Time at={t.since} now={now} />
              </td>
              <td class="number">{count(t.answers)}</td>
              <td class="ranges">
                <bdi>{t.partitions.slice(0, MOST_PARTITIONS).join(" ") || "none"}</bdi>
                {t.partitions.length > MOST_PARTITIONS && ` and ${t.partitions.length - MOST_PARTITIONS} more`}
              </td>
            </tr>
          ))}
        </Table>
      )}
    </section>
  );
}
