# SPDX-License-Identifier: Apache-2.0
"""The parts of an Airflow deployment for the command line: the landings of a DAG, and connections by their ids.

A DAG is parsed as Airflow parses it, and completed by the deployment's settings, as in its tasks. Nothing is written to
Airflow's database. Connections come from Airflow's sources and have secrets: they are passed on, never logged or
stored. Imported only on request, so the command line otherwise needs no Airflow.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.hooks import Settings
from airflow_provider_lakecommit.landing import Landing, LandingSet

if TYPE_CHECKING:
    from airflow.sdk import DAG

L = TypeVar("L", bound=Landing | LandingSet)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared(Generic[L]):
    """A landing or a set as tasks of a DAG declare it. ``paths`` are its task groups and tasks."""

    of: L
    paths: frozenset[str]
    spark_conn_id: str = ""
    spark_conf: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        outer = [p for p in self.paths if not any(p.startswith(f"{other}.") for other in self.paths)]
        return f"{self.of.name} ({', '.join(sorted(outer))})"


def landings_of(dag_id: str, *, group: str | None = None, name: str | None = None) -> list[Declared[Landing]]:
    """Return the landings of a DAG.

    :param group: only those with tasks in this task group, or of this task
    :param name: only the one of this name
    """
    every = _merged(dag_id, list(_declared(_parsed(dag_id), Landing)))
    found = [d for d in every if (group is None or group in d.paths) and (name is None or d.of.name == name)]
    if found:
        return found
    if not every:
        raise SpecError("LC8006", f"DAG {dag_id!r} has no task of a landing")
    request = " and ".join([f"task group {group!r}"] * bool(group) + [f"landing {name!r}"] * bool(name))
    raise SpecError("LC8007", f"DAG {dag_id!r} has no {request}; it has {'; '.join(map(str, every))}")


def set_of(dag_id: str, *, group: str | None = None) -> Declared[LandingSet] | None:
    """Return the landing set of a DAG, as completed by this deployment; ``None`` if it has none.

    :param group: only one with tasks in this task group, or of this task
    """
    found = [d for d in _declared(_parsed(dag_id), LandingSet) if group is None or group in d.paths]
    names = sorted({d.of.name for d in found})
    if len(names) > 1:
        raise SpecError(
            "LC8008", f"DAG {dag_id!r} has {len(names)} landing sets, {', '.join(names)}: choose one by --task-group"
        )
    chosen = next((d for d in found if d.spark_conn_id), found[0] if found else None)
    return chosen and replace(chosen, of=chosen.of.completed_by(complete))


def complete(landing: Landing) -> Landing:
    """Return the landing with the deployment's settings as defaults."""
    return Settings.read().complete(landing)


def kafka_of(conn_id: str) -> dict[str, Any]:
    from airflow_provider_lakecommit.hooks import kafka_settings

    return kafka_settings(conn_id)


def registry_of(conn_id: str) -> dict[str, Any]:
    from airflow_provider_lakecommit.hooks import registry_connection

    return registry_connection(conn_id)


def catalog_of(conn_id: str) -> dict[str, str]:
    from airflow_provider_lakecommit.hooks import catalog_properties

    return catalog_properties(conn_id)


def rest_of(conn_id: str) -> dict[str, Any]:
    from airflow_provider_lakecommit.hooks import connection, rest_settings

    return rest_settings(connection(conn_id, "http", "the address of a Kafka Connect worker"))


def spark_of(conn_id: str, conf: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the section `spark` for a connection to Spark Connect, a local session or a standalone cluster."""
    from airflow_provider_lakecommit.hooks import CONNECT, connect_url, connection, master_url

    found = connection(conn_id, "spark", "the master as host (local[2], …), or of type `spark_connect`")
    if found.conn_type == CONNECT:
        return {"remote": connect_url(conn_id)}
    master = master_url(found)
    if not (found.host and master.startswith(("local", "spark://"))):
        raise SpecError(
            "LC8009",
            f"the Spark connection {conn_id!r} submits to {master}, which the command line cannot do: give "
            "--spark-conn-id of a connection of type `spark_connect`, or with a local (local[2]) or standalone master "
            "(spark://host:7077), or trigger the DAG",
        )
    return {"master": master, **({"conf": dict(conf)} if conf else {})}


def _declared(dag: DAG, kind: type[L]) -> Iterator[Declared[L]]:
    from airflow_provider_lakecommit.operators import LandingTask, declared_of

    for task in dag.tasks:
        mapped = getattr(task, "partial_kwargs", None)
        operator = type(task) if mapped is None else task.operator_class
        if not (isinstance(operator, type) and issubclass(operator, LandingTask)):
            continue
        stated = vars(task) if mapped is None else mapped
        declared = declared_of(stated.get("landing_set") or stated["landing"])
        if isinstance(declared, kind):
            spark = stated.get("spark_conn_id")
            yield Declared(
                of=declared,
                paths=frozenset({task.task_id, *_groups(task)}),
                spark_conn_id=_rendered(dag, spark) if isinstance(spark, str) else "",
                spark_conf=stated.get("spark_conf"),
            )


def _groups(task: Any) -> Iterator[str]:
    group = task.task_group
    while group is not None and group.group_id:
        yield group.group_id
        group = group.parent_group


def _rendered(dag: DAG, text: str) -> str:
    """Return a templated id, rendered with the defaults of the DAG's params."""
    if "{{" not in text:
        return text
    with suppress(Exception):
        rendered = dag.get_template_env().from_string(text).render(params=dag.params.dump())
        return str(rendered)
    return text


def _merged(dag_id: str, found: Sequence[Declared[Landing]]) -> list[Declared[Landing]]:
    """Return each landing once, with all of its tasks."""
    merged: dict[str, Declared[Landing]] = {}
    for d in found:
        known = merged.setdefault(d.of.name, d)
        if known.of != d.of:
            raise SpecError(
                "LC8010",
                f"DAG {dag_id!r} declares landing {d.of.name!r} in two ways: in "
                f"{', '.join(sorted(known.paths))} and in {', '.join(sorted(d.paths))}",
            )
        merged[d.of.name] = replace(
            known,
            paths=known.paths | d.paths,
            spark_conn_id=known.spark_conn_id or d.spark_conn_id,
            spark_conf=known.spark_conf or d.spark_conf,
        )
    return list(merged.values())


@cache
def _parsed(dag_id: str) -> DAG:
    """Return the parsed DAG, once per process."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import BundleDagBag

    known: set[str] = set()
    errors: dict[str, str] = {}
    for bundle, file in _task_paths(dag_id, DagBundlesManager()):  # type: ignore[no-untyped-call]
        bag = BundleDagBag(dag_folder=file or bundle.path, bundle_path=bundle.path, bundle_name=bundle.name)
        if (dag := bag.dags.get(dag_id)) is not None:
            return dag
        known |= set(bag.dags)
        errors |= bag.import_errors
    near = difflib.get_close_matches(dag_id, sorted(known), n=3)
    lines = {file: [line.strip() for line in text.splitlines() if line.strip()] for file, text in errors.items()}
    texts = [f"{file}: {some[-1] if some else 'no reason given'}" for file, some in lines.items()]
    raise SpecError(
        "LC8011",
        f"Airflow has no DAG {dag_id!r}"
        + (f" (did you mean {' or '.join(map(repr, near))}?)" if near else f"; it has {len(known)} others")
        + (f"; files that cannot be parsed: {'; '.join(texts)}" if texts else ""),
    )


def _task_paths(dag_id: str, manager: Any) -> Iterator[tuple[Any, Path | None]]:
    """Yield where a DAG may be: first the file known to Airflow, then all."""
    from airflow.models.dag import DagModel

    known = None
    # Without its database Airflow knows nothing, and the files are enough.
    with suppress(Exception):
        known = DagModel.get_dagmodel(dag_id)
    bundles = {bundle.name: bundle for bundle in manager.get_all_dag_bundles()}
    for bundle in bundles.values():
        bundle.initialize()
    if known is not None and known.bundle_name in bundles and known.relative_fileloc:
        bundle = bundles[known.bundle_name]
        if (file := Path(bundle.path) / known.relative_fileloc).exists():
            yield bundle, file
    yield from ((bundle, None) for bundle in bundles.values())
