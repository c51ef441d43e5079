// SPDX-License-Identifier: Apache-2.0
/** What is worth knowing beyond the cycles: dead letters by kind, and decisions of users. */
import type { ComponentChildren } from "preact";
import type { Detail } from "./api";
import { count, short } from "./format";
import { Folded, Table, Time } from "./parts";

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

export function Rejects({ rejects, now }: { rejects: Detail["rejects"]; now: number }) {
  if (rejects.length === 0) return null;
  return (
    <Part label="Dead letters by kind" heads={["kind", "#committed", "last", "since", "newest ranges", "reason"]}>
      {rejects.map((r) => (
        <tr key={r.kind}>
          <td>
            <bdi>{short(r.kind, 60)}</bdi>
          </td>
          <td class="number">{count(r.records)}</td>
          <td class="time">
            <Time at={r.at} now={now} /> ago
          </td>
          <td class="time">
            <Time at={r.since} now={now} /> ago
          </td>
          <td>
            <Folded text={r.ranges.join(", ")} most={60} />
          </td>
          <td class="remark">
            <Folded text={r.reason} />
          </td>
        </tr>
      ))}
    </Part>
  );
}

export function Decisions({ decisions }: { decisions: Detail["decisions"] }) {
  if (decisions.length === 0) return null;
  return (
    <Part label="Decisions" heads={["time", "command", "user", "decision", "reason"]}>
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
