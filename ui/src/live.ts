// SPDX-License-Identifier: Apache-2.0
/** Answers that stay current: fetched when something changed, and kept while the server does not answer. */
import { useEffect, useState } from "preact/hooks";
import type { Change, Topic } from "./api";

export interface Answer<T> {
  value: T | null;
  error: string;
}

const RETRY_MS = 5_000;
/** What Airflow's database says of sensors and DAGs changes without a word, and so do curves. */
const REFRESH_MS = 15_000;

type Listener = (change: Change) => void;
const listeners = new Set<Listener>();
let source: EventSource | null = null;

function listen(listener: Listener): () => void {
  listeners.add(listener);
  if (source === null) {
    source = new EventSource("api/v1/changes");
    source.addEventListener("change", (event) => {
      const change = JSON.parse((event as MessageEvent<string>).data) as Change;
      for (const each of listeners) each(change);
    });
    // An EventSource that was refused, as after a logout, does not come again by itself.
    source.onerror = () => {
      if (source?.readyState !== EventSource.CLOSED) return;
      source = null;
      window.setTimeout(() => {
        if (source === null && listeners.size > 0) listen(listener);
      }, RETRY_MS);
    };
  }
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) {
      source?.close();
      source = null;
    }
  };
}

/** The version of the rows, and how fresh each topic is. */
export function useChanges(): { version: number; topics: Topic[] | null } {
  const [change, setChange] = useState<{ version: number; topics: Topic[] | null }>({ version: -1, topics: null });
  useEffect(() => listen(setChange), []);
  return change;
}

/** What `fetcher` answers, asked again when `key` or the version changes, after an error, and now and then. */
export function useAnswer<T>(key: string, version: number, fetcher: (signal: AbortSignal) => Promise<T>): Answer<T> {
  const [answer, setAnswer] = useState<Answer<T> & { key: string }>({ value: null, error: "", key });
  const [attempt, setAttempt] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    let again = 0;
    const after = (delay: number) => {
      again = window.setTimeout(() => {
        setAttempt((n) => n + 1);
      }, delay);
    };
    fetcher(stop.signal).then(
      (value) => {
        if (stop.signal.aborted) return;
        setAnswer({ value, error: "", key });
        after(REFRESH_MS);
      },
      (error: unknown) => {
        if (stop.signal.aborted) return;
        const text = error instanceof Error ? error.message : String(error);
        setAnswer((known) => ({ value: known.key === key ? known.value : null, error: text, key }));
        after(RETRY_MS);
      },
    );
    return () => {
      stop.abort();
      window.clearTimeout(again);
    };
  }, [key, version, attempt]);
  return answer.key === key ? answer : { value: null, error: "" };
}

/** Seconds of the epoch, again each second: what is relative stays right. */
export function useNow(): number {
  const [now, setNow] = useState(Date.now() / 1000);
  useEffect(() => {
    const timer = window.setInterval(() => {
      setNow(Date.now() / 1000);
    }, 1000);
    return () => {
      window.clearInterval(timer);
    };
  }, []);
  return now;
}
