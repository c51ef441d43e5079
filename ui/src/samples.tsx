// SPDX-License-Identifier: Apache-2.0
/** Dead letters as the table holds them: texts of whoever wrote to the topic, shown as texts with all that they hold. */
import type { Part, Sample, Samples } from "./api";
import { bytes, short, visible } from "./format";
import { Time } from "./parts";

export function DeadLetters({ samples, counted, now }: { samples: Samples; counted: boolean; now: number }) {
  if (samples.samples.length === 0) {
    const why = samples.hidden || samples.trouble || (samples.as_of === null ? "they are looked for …" : "");
    return counted && why ? <p class="dim">No samples of dead letters: {why}</p> : null;
  }
  return (
    <section>
      <h2>Samples of dead letters</h2>
      <p class="dim">
        The newest of each kind in the dead-letter table, as of <Time at={samples.as_of} now={now} /> ago
        {samples.trouble && ` · ${samples.trouble}`}
      </p>
      <ul class="samples">
        {samples.samples.map((s) => (
          <li key={`${s.partition}@${s.offset}`}>
            <Letter sample={s} now={now} />
          </li>
        ))}
      </ul>
    </section>
  );
}

function Letter({ sample: s, now }: { sample: Sample; now: number }) {
  return (
    <details>
      <summary>
        <bdi>{short(visible(s.partition), 60)}</bdi>@{s.offset} · <bdi>{short(visible(s.kind), 60)}</bdi>
        {s.at !== null && (
          <span class="dim">
            {" · "}
            <Time at={s.at} now={now} /> ago
          </span>
        )}
      </summary>
      <p class="remark">
        <bdi>{visible(s.reason)}</bdi>
      </p>
      <Held name="key" part={s.key} />
      <Held name="value" part={s.value} />
      {s.headers.length > 0 && (
        <p class="dim">
          headers: <bdi>{s.headers.map((h) => short(visible(h), 60)).join(", ")}</bdi>
        </p>
      )}
    </details>
  );
}

function Held({ name, part }: { name: string; part: Part | null }) {
  if (part === null) return <p class="dim">no {name}</p>;
  const told = part.text ?? part.base64 ?? "";
  const kind = part.text === null ? ", no UTF-8: its bytes in Base64" : "";
  return (
    <div>
      <span class="dim">
        {name}, {bytes(part.size)}
        {kind}
      </span>
      <pre class="value" tabIndex={0} role="region" aria-label={name}>
        <bdi>{visible(told)}</bdi>
        {whole(part) ? "" : " …"}
      </pre>
    </div>
  );
}

/** Is all of it told? */
export function whole(part: Part): boolean {
  const told = part.text === null ? atob(part.base64 ?? "").length : new TextEncoder().encode(part.text).length;
  return told >= part.size;
}
