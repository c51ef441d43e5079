// SPDX-License-Identifier: Apache-2.0
/** The Airflow around the page: its theme, and its own pages. */

/** The address of the Airflow that this page is mounted in: the folder above. */
export function airflowBase(): string {
  return new URL("../", document.baseURI.replace(/[?#].*$/, "")).href;
}

export function dagUrl(dag: string): string {
  return `${airflowBase()}dags/${encodeURIComponent(dag)}`;
}

export function runUrl(dag: string, run: string): string {
  return `${dagUrl(dag)}/runs/${encodeURIComponent(run)}`;
}

export function taskUrl(dag: string, run: string, task: string, mapIndex: number): string {
  const mapped = mapIndex >= 0 ? `/mapped/${mapIndex}` : "";
  return `${runUrl(dag, run)}/tasks/${encodeURIComponent(task)}${mapped}`;
}

function outer(): Document | null {
  try {
    return window.parent === window ? null : window.parent.document;
  } catch {
    return null;
  }
}

/** Airflow frames the page without leave to lead its window elsewhere, so the window around it follows the link. */
export function follow(event: MouseEvent): void {
  const around = outer();
  const target = event.currentTarget;
  if (around === null || !(target instanceof HTMLAnchorElement) || event.button !== 0) return;
  event.preventDefault();
  const link = around.createElement("a");
  link.href = target.href;
  if (event.ctrlKey || event.metaKey) link.target = "_blank";
  around.body.append(link);
  link.click();
  link.remove();
}

const THEME = "theme";

/** Told when light has become dark, or the other way round; returns what ends that. */
export function onTheme(told: () => void): () => void {
  document.addEventListener(THEME, told);
  return () => {
    document.removeEventListener(THEME, told);
  };
}

/** As Airflow around it is, be it light or dark; alone, as the system is. */
export function followTheme(): void {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const around = outer()?.documentElement ?? null;
  const apply = () => {
    const theme = around?.classList.contains("dark") ? "dark" : around?.classList.contains("light") ? "light" : null;
    document.documentElement.dataset["theme"] = theme ?? (dark.matches ? "dark" : "light");
    document.dispatchEvent(new Event(THEME));
  };
  apply();
  dark.addEventListener("change", apply);
  if (around !== null) new MutationObserver(apply).observe(around, { attributeFilter: ["class"] });
}
