# SPDX-License-Identifier: Apache-2.0
"""A process that is killed at a place of its work: by SIGKILL, before or after a call of the n-th time."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import pytest
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy.orm import Session

__all__ = ["COMMIT_POINTS", "Point", "dying", "killed_in"]

PATIENCE = 120.0
Point = tuple[type, str, Literal["before", "after"]]
COMMIT_POINTS: Mapping[str, Point] = {
    "all is staged": (SqlCatalog, "commit_table", "before"),
    "the metadata is written": (MetastoreCatalog, "_write_metadata", "after"),
    "in the catalog's transaction": (Session, "commit", "before"),
    "nobody was told": (Session, "commit", "after"),
    "all is done": (SqlCatalog, "commit_table", "after"),
}
"""Around the catalog's commit."""


@contextmanager
def dying(point: Point, nth: int = 1) -> Iterator[None]:
    """The process is killed when it is there for the n-th time."""
    kind, name, when = point
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


def killed_in(work: Callable[..., None], *arguments: object) -> None:
    """A process of its own does the work and is killed in it."""
    process = multiprocessing.get_context("spawn").Process(target=work, args=arguments)
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == -signal.SIGKILL, "it was to be killed there"
