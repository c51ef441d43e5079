# SPDX-License-Identifier: Apache-2.0
"""`rescue --commit` killed around the catalog's commit, and given again: each file is in the table once."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy.orm import Session

from airflow_provider_lakecommit.connector import rescue as connector_rescue
from tests.integration.sink import Sink

pytestmark = pytest.mark.faults

PATIENCE = 120.0
PORTION = 2
POINTS = {
    "all is staged": (SqlCatalog, "commit_table", "before"),
    "the metadata is written": (MetastoreCatalog, "_write_metadata", "after"),
    "in the catalog's transaction": (Session, "commit", "before"),
    "nobody was told": (Session, "commit", "after"),
    "all is done": (SqlCatalog, "commit_table", "after"),
}
"""Where the process dies."""


@contextmanager
def dying(point: str, nth: int) -> Iterator[None]:
    """The process is killed when it is there for the n-th time."""
    kind, name, when = POINTS[point]
    call, times = getattr(kind, name), [0]

    def killed(*args: Any, **kwargs: Any) -> Any:
        times[0] += 1
        if (mine := times[0] == nth) and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = call(*args, **kwargs)
        if mine:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    # As it is called there: with the instance, or as a static method of the class.
    static = isinstance(vars(kind)[name], staticmethod)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, name, staticmethod(killed) if static else killed)
        yield


def rescued(kafka: dict[str, str], catalog: dict[str, str], topic: str, connector: str, point: str, nth: int) -> None:
    """In a process of its own: what `rescue --commit` does, in portions of a few files."""
    with pytest.MonkeyPatch.context() as patch, dying(point, nth):
        defaults = {**(connector_rescue.Rescue.__init__.__kwdefaults__ or {}), "most_files": PORTION}
        patch.setattr(connector_rescue.Rescue.__init__, "__kwdefaults__", defaults)
        connector_rescue.rescue(
            kafka, catalog, control_topic=topic, connector=connector, group=None, branch="main", names=None, commit=True
        )


@pytest.mark.heavy(but=("1-in the catalog's transaction", "2-nobody was told"))
@pytest.mark.parametrize("point", list(POINTS))
@pytest.mark.parametrize("nth", [1, 2])
def test_whenever_a_rescue_is_killed_each_file_is_committed_once(
    catalog: Catalog,
    catalog_properties: dict[str, str],
    produce: Callable[..., Any],
    make_topic: Callable[..., str],
    bootstrap: str,
    point: str,
    nth: int,
) -> None:
    sink = Sink(catalog, produce, make_topic(1), f"sink-{uuid4().hex[:6]}")
    sink.create()
    sink.cycle_of([100])
    sink.begin()
    for n in range(5):
        sink.announce([2 * n, 2 * n + 1])
    kafka = {"bootstrap.servers": bootstrap}
    arguments = (kafka, catalog_properties, sink.topic, sink.connector, point, nth)
    process = multiprocessing.get_context("spawn").Process(target=rescued, args=arguments)
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == -signal.SIGKILL, "it was to be killed there"
    done = nth if point in ("nobody was told", "all is done") else nth - 1
    assert sink.ids() == [*range(4 * done), 100], "that many portions were committed when it died"

    for _ in range(2):
        (report,) = connector_rescue.rescue(
            kafka,
            catalog_properties,
            control_topic=sink.topic,
            connector=sink.connector,
            group=None,
            branch="main",
            names=None,
            commit=True,
        )
        assert sink.ids() == [*range(10), 100]
    assert report.committed == ()
    assert sink.floor() == sink.position - 1
