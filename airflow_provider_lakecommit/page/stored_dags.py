# SPDX-License-Identifier: Apache-2.0
"""Airflow's database, read for many requests: parsed DAGs, each version once, and cached queries.

A DAG in an unknown form raises one of :data:`OTHER_FORM`; the caller decides what that means.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from airflow.models.dag import DagModel
from airflow.models.serialized_dag import SerializedDagModel
from airflow.utils.session import create_session
from sqlalchemy import func, select

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

MOST = 5_000
OTHER_FORM = (AttributeError, KeyError, TypeError, ValueError)

Made = TypeVar("Made")


def tasks_in(stored: Any) -> Iterator[Mapping[str, Any]]:
    for each in stored["dag"]["tasks"]:
        task = each["__var"]
        if not isinstance(task, Mapping):
            raise TypeError("a task is no object")
        yield task


class StoredDags(Generic[Made]):
    """Values derived from parsed DAGs, for one thread at a time.

    :param make: derives a value from a DAG's id and Airflow's JSON of it
    """

    def __init__(self, make: Callable[[str, Any], Made]) -> None:
        self._make = make
        self._known: dict[str, tuple[str, Made]] = {}

    def __call__(
        self, session: Session, dags: Collection[str] | None = None, most_new: int | None = None
    ) -> dict[str, Made]:
        """Return the current values by DAG id.

        :param dags: the requested ones; ``None``: all, at most :data:`MOST`
        :param most_new: read at most this many changed ones now, the others in later calls
        """
        stored = SerializedDagModel
        newest = (
            select(stored.dag_id, func.max(stored.created_at).label("at"))
            .join(DagModel, DagModel.dag_id == stored.dag_id)
            .where(DagModel.is_stale.is_(False), *(() if dags is None else (stored.dag_id.in_(dags),)))
            .group_by(stored.dag_id)
            .limit(MOST)
            .subquery()
        )
        of_newest = (stored.dag_id == newest.c.dag_id) & (stored.created_at == newest.c.at)
        rows = session.execute(select(stored.dag_id, stored.dag_hash).join(newest, of_newest)).all()
        changed = [(dag, sha) for dag, sha in rows if self._known.get(dag, ("",))[0] != sha]
        for dag, sha in changed[:most_new]:
            model = session.scalar(select(stored).where(stored.dag_id == dag, stored.dag_hash == sha).limit(1))
            self._known[dag] = sha, self._make(dag, model.data if model is not None else None)
            if model is not None:
                session.expunge(model)
        self._known = {dag: self._known[dag] for dag, _ in rows if dag in self._known}
        return {dag: made for dag, (_, made) in self._known.items()}


Found = TypeVar("Found")


class DatabaseReader(Generic[Found]):
    """A query to Airflow's database, cached for a number of seconds, for any thread.

    The same object is returned while the result is unchanged, so that derived values can be cached too.
    """

    def __init__(self, query: Callable[[Session], Found], seconds: float) -> None:
        self._query, self._seconds = query, seconds
        self._lock = threading.Lock()
        self._next = float("-inf")
        self._found: list[Found] = []

    def __call__(self) -> Found:
        with self._lock:
            if time.monotonic() >= self._next:
                with create_session() as session:
                    found = self._query(session)
                if self._found != [found]:
                    self._found = [found]
                self._next = time.monotonic() + self._seconds
            return self._found[0]
