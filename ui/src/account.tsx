// SPDX-License-Identifier: Apache-2.0
/** What became of the offsets of a window: a bar of its parts, and the sum in words. */
import type { Account } from "./api";
import { count } from "./format";

const PARTS: [keyof Account, string, string][] = [
  ["landed", "landed", "good"],
  ["rejected", "rejected", "bad"],
  ["superseded", "superseded", "calm"],
  ["deleted", "deletes", "calm"],
  ["filtered", "filtered", "calm"],
  ["gaps", "without a record", "none"],
  ["skipped", "skipped", "warn"],
];

/** "15 read = 12 landed + 2 rejected + 1 filtered", with the parts that are none left out. */
export function sum(account: Account): string {
  const parts = PARTS.filter(([name]) => account[name] > 0).map(([name, words]) => `${account[name].toLocaleString()} ${words}`);
  return `${account.read.toLocaleString()} offsets read${parts.length ? ` = ${parts.join(" + ")}` : ""}`;
}

/** Does it add up? It always must; if it does not, that is what is shown. */
export function addsUp(account: Account): boolean {
  return PARTS.reduce((total, [name]) => total + account[name], 0) === account.read;
}

export function Accounting({
  account,
  rows,
  planned,
}: {
  account: Account;
  rows: Record<string, number>;
  planned: number;
}) {
  const whole = Math.max(1, planned, account.read);
  return (
    <div class="account">
      <div class="parts" role="img" aria-label={sum(account)}>
        {PARTS.filter(([name]) => account[name] > 0).map(([name, words, colour]) => (
          <span
            key={name}
            class={`part ${colour}`}
            style={{ flexGrow: account[name] / whole }}
            title={`${count(account[name])} ${words}`}
          />
        ))}
        <span class="part rest" style={{ flexGrow: Math.max(0, whole - account.read) / whole }} />
      </div>
      <p class={addsUp(account) ? "dim" : "failure"}>
        {sum(account)}
        {!addsUp(account) && " – the sum does not match"}
        {Object.entries(rows).map(([table, n]) => (
          <span key={table}>
            {" · "}
            {n.toLocaleString()} {n === 1 ? "row" : "rows"} in <bdi>{table}</bdi>
          </span>
        ))}
      </p>
    </div>
  );
}
