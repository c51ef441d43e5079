// SPDX-License-Identifier: Apache-2.0
/** What the user may do about a landing: told with what it comes to, asked back, and then done by Airflow's own API. */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { airflowBase, dagUrl, runUrl } from "./airflow";
import { actions as fetchActions, detailOf, type Action, type Detail } from "./api";
import { useAnswer } from "./live";
import { AirflowLink, Failure } from "./parts";

const TITLES: Record<string, string> = {
  publish_now: "Publish now",
  retry_blocked: "Retry blocked",
  verify: "Verify",
  drain: "Drain",
  suspend: "Pause",
  resume: "Resume",
};

export function titleOf(kind: string): string {
  return TITLES[kind] ?? kind;
}

/** "ends the run" as a sentence. */
export function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

/** A request to Airflow's API in the user's name. */
export interface Step {
  method: "PATCH" | "POST";
  path: string;
  body: Record<string, unknown>;
  does: string;
}

/** What is asked of Airflow, in this order. */
export function stepsOf(action: Action, landing: string): Step[] {
  const pause = (dag: string, paused: boolean): Step => ({
    method: "PATCH",
    path: `api/v2/dags/${encodeURIComponent(dag)}?update_mask=is_paused`,
    body: { is_paused: paused },
    does: `${paused ? "pause" : "unpause"} DAG ${dag}`,
  });
  const run: Step[] = action.dag
    ? [
        {
          method: "POST",
          path: `api/v2/dags/${encodeURIComponent(action.dag)}/dagRuns`,
          body: {
            logical_date: null,
            conf: action.conf,
            note: `${titleOf(action.kind)}: landing ${landing}, from the page Lake commits`,
          },
          does: `trigger a run of DAG ${action.dag}`,
        },
      ]
    : [];
  return [
    ...action.pauses.map((dag) => pause(dag, true)),
    ...action.unpauses.map((dag) => pause(dag, false)),
    ...run,
  ];
}

/** Airflow's words for what it refused. */
export function refusal(status: number, said: string): string {
  return detailOf(said).slice(0, 300) || `Airflow answered ${status}`;
}

async function send(step: Step): Promise<string> {
  const answer = await fetch(airflowBase() + step.path, {
    method: step.method,
    headers: { "Content-Type": "application/json", Accept: "application/json" },
    body: JSON.stringify(step.body),
  });
  const said = await answer.text();
  if (!answer.ok) throw new Error(refusal(answer.status, said));
  return step.method === "POST" ? (JSON.parse(said) as { dag_run_id: string }).dag_run_id : "";
}

interface Done {
  action: Action;
  did: string[];
  run: string;
  error: string;
}

/** All steps, up to the first that Airflow refuses. */
async function perform(action: Action, landing: string): Promise<Done> {
  const done: Done = { action, did: [], run: "", error: "" };
  for (const step of stepsOf(action, landing)) {
    try {
      done.run = (await send(step)) || done.run;
      done.did.push(step.does);
    } catch (error) {
      done.error = `Airflow refused to ${step.does}: ${error instanceof Error ? error.message : String(error)}`;
      break;
    }
  }
  return done;
}

/** Seconds after which it is asked for again. */
const EVERY = 5;

/** What takes an action's place when it was done. */
const THEN: Record<string, string> = { suspend: "resume", resume: "suspend", drain: "resume" };

/** The focus stays among the actions, though the one that had it is not offered any more: that which came in its place
 * has it then, or else the words on what was done.
 */
function useKeptFocus(): { current: HTMLElement | null } {
  const section = useRef<HTMLElement>(null);
  const had = useRef("");
  useEffect(() => {
    const pressed = (event: PointerEvent) => {
      if (!(event.target instanceof Node && section.current?.contains(event.target))) had.current = "";
    };
    document.addEventListener("pointerdown", pressed);
    return () => {
      document.removeEventListener("pointerdown", pressed);
    };
  }, []);
  // Each time that something is drawn, which is once a second at least.
  useEffect(() => {
    const now = document.activeElement;
    if (now instanceof HTMLElement && section.current?.contains(now)) had.current = now.dataset["kind"] ?? had.current;
    // Nothing has it when what had it is taken away; else somebody went elsewhere.
    else if (now !== null && now !== document.body) had.current = "";
    if (had.current === "" || now !== document.body) return;
    const button = (kind: string | undefined) => section.current?.querySelector<HTMLElement>(`button[data-kind="${kind}"]`);
    (button(had.current) ?? button(THEN[had.current]) ?? section.current?.querySelector<HTMLElement>("h2"))?.focus();
  });
  return section;
}

export function Actions({ landing, now }: { landing: Detail; now: number }) {
  const [asked, setAsked] = useState<Action | null>(null);
  const [done, setDone] = useState<Done | null>(null);
  const [turn, setTurn] = useState(0);
  const [doing, setDoing] = useState("");
  // Two clicks may come before anything is drawn anew.
  const busy = useRef(false);
  const section = useKeptFocus();
  const { value, error } = useAnswer(`actions/${landing.id}`, Math.floor(now / EVERY) + turn, (signal) =>
    fetchActions(landing.id, signal),
  );
  // What was asked for, or done, stays to be seen while the page's own server does not answer.
  if (value === null) return <Failure error={error} />;
  if (!value.enabled || (value.actions.length === 0 && done === null)) return null;
  const answered = async (yes: boolean) => {
    const action = asked;
    setAsked(null);
    if (!yes || action === null || busy.current) return;
    busy.current = true;
    setDone(null);
    setDoing(action.kind);
    setDone(await perform(action, landing.name));
    setDoing("");
    busy.current = false;
    setTurn((n) => n + 1);
  };
  return (
    <section ref={section}>
      <h2 tabIndex={-1}>Actions</h2>
      <Failure error={error} />
      <ul class="actions">
        {value.actions.map((a) => (
          <li key={a.kind}>
            <button
              type="button"
              data-kind={a.kind}
              // Not `disabled`, which would take the focus away, and the reason from who cannot see it.
              aria-disabled={doing !== "" || a.hindrance !== ""}
              aria-describedby={`does-${a.kind}`}
              onClick={() => {
                if (!busy.current && !a.hindrance) setAsked(a);
              }}
            >
              {titleOf(a.kind)} …
            </button>{" "}
            <span id={`does-${a.kind}`}>
              {a.does} <span class="dim">({a.hindrance || a.now})</span>
            </span>
          </li>
        ))}
      </ul>
      <div role="status">
        {doing && <p>{titleOf(doing)}: sending the request to Airflow …</p>}
        {done !== null && <Result done={done} />}
      </div>
      {asked !== null && <Ask action={asked} landing={landing.name} answered={(yes) => void answered(yes)} />}
    </section>
  );
}

function Result({ done }: { done: Done }) {
  return (
    <p class={done.error ? "failure" : "held"}>
      {titleOf(done.action.kind)}: {done.did.length > 0 ? `done: ${done.did.join(", ")}. ` : ""}
      {done.run && <AirflowLink href={runUrl(done.action.dag, done.run)}>Open the run</AirflowLink>}
      {done.error && <strong>{done.error}</strong>}
    </p>
  );
}

function Ask({
  action,
  landing,
  answered,
}: {
  action: Action;
  landing: string;
  answered: (yes: boolean) => void;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const shown = dialog.current;
    shown?.showModal();
    // The focus goes back to the button, which it does not when the dialog is only taken away.
    return () => shown?.close();
  }, []);
  return (
    <dialog
      ref={dialog}
      aria-labelledby="ask"
      onCancel={(event) => {
        event.preventDefault();
        answered(false);
      }}
    >
      <h2 id="ask">
        {titleOf(action.kind)}: <bdi>{landing}</bdi>
      </h2>
      <p>
        {sentence(action.does)} Now: {action.now}.
      </p>
      <p>Airflow does this in your name. Its audit log shows you as the user:</p>
      <ol>
        {stepsOf(action, landing).map((step) => (
          <li key={step.path}>{step.does}</li>
        ))}
      </ol>
      {action.asks && (
        <p>
          This DAG waits for an approval before it changes anything: see <em>Required Actions</em> on{" "}
          <AirflowLink href={dagUrl(action.dag)}>its page</AirflowLink>.
        </p>
      )}
      <p class="buttons">
        <button
          type="button"
          onClick={() => {
            answered(false);
          }}
        >
          Cancel
        </button>{" "}
        <button
          type="button"
          class="yes"
          onClick={() => {
            answered(true);
          }}
        >
          {titleOf(action.kind)}
        </button>
      </p>
    </dialog>
  );
}
