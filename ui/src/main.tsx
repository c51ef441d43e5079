// SPDX-License-Identifier: Apache-2.0
/** The page: the list, or one landing by `#/landing/<id>`; within a DAG, run or task of Airflow, those of its DAG. */
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { followTheme } from "./airflow";
import { LandingPage } from "./landing";
import { List } from "./list";
import "./style.css";

function useHash(): string {
  const [hash, setHash] = useState(window.location.hash);
  useEffect(() => {
    const changed = () => {
      setHash(window.location.hash);
    };
    window.addEventListener("hashchange", changed);
    return () => {
      window.removeEventListener("hashchange", changed);
    };
  }, []);
  return hash;
}

function Page() {
  const id = /^#\/landing\/([0-9a-f]+)$/.exec(useHash())?.[1];
  const opened = useRef("");
  useEffect(() => {
    opened.current = id ?? "";
  }, [id]);
  const dag = new URLSearchParams(window.location.search).get("dag_id") ?? "";
  return id === undefined ? <List dag={dag} opened={opened.current} /> : <LandingPage key={id} id={id} />;
}

followTheme();
const place = document.getElementById("page");
if (place !== null) render(<Page />, place);
