# SPDX-License-Identifier: Apache-2.0
"""Something happens between any two steps of a cycle: where it can happen, and how it is made to happen there.

Contract: :func:`interrupted_cycle` does one cycle and calls ``act`` exactly once, at the given :class:`Step`; what the
cycle itself raises is an error of the package and is handed back. Between steps inside a function (a report, a commit
request) the act is hung into the one call that makes the step durable, and is done before or after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from airflow_provider_lakecommit.control.control_writer import ControlWriter
from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.iceberg import catalog
from airflow_provider_lakecommit.status.history import read_history
from airflow_provider_lakecommit.status.table_history import Severity
from airflow_provider_lakecommit.status.verify import check_landing
from tests.support.waiting import PATIENCE
from tests.support.world import World

Act = Callable[[], None]


class Step(StrEnum):
    """Between which two steps of a cycle something happens."""

    OPENED = "open … write"
    UNREPORTED = "write … report"
    REPORTED = "report … look"
    CHECKED = "look … commit request"
    APPENDED = "append … announcement"
    ANNOUNCED = "announcement … COMPLETE"
    CLOSED = "COMPLETE … next open"


_INSIDE = {
    Step.UNREPORTED: (ControlWriter, "send", "before"),
    Step.CHECKED: (SqlCatalog, "commit_table", "before"),
    Step.APPENDED: (SqlCatalog, "commit_table", "after"),
    Step.ANNOUNCED: (ControlWriter, "send", "after"),
}


def interrupted_cycle(world: World, step: Step, act: Act, run: str = "interrupted") -> LakecommitError | None:
    """One cycle with ``act`` between two of its steps; returns the error that ended it, if one did."""
    done: list[None] = []

    def once() -> None:
        if not done:
            done.append(None)
            act()

    inside = hung(step, once) if step in _INSIDE else nullcontext()
    error: LakecommitError | None = None
    opened = world.open(run)
    try:
        if step is Step.OPENED:
            once()
        with inside if step is Step.UNREPORTED else nullcontext():
            world.write(opened)
        if step is Step.REPORTED:
            once()
        with inside if step in (Step.CHECKED, Step.APPENDED, Step.ANNOUNCED) else nullcontext():
            world.close(run, opened)
    except LakecommitError as e:
        error = e
    if step is Step.CLOSED:
        once()
    if not done:
        raise AssertionError(f"the cycle never came to {step.value}: {error}")
    return error


@contextmanager
def hung(step: Step, act: Act) -> Iterator[None]:
    """Act at the first call that makes a step durable; calls that the act makes itself go through untouched."""
    owner, method, when = _INSIDE[step]
    real = getattr(owner, method)

    def around(self: Any, *args: Any, **kwargs: Any) -> Any:
        patch.setattr(owner, method, real)
        if when == "before":
            act()
            return real(self, *args, **kwargs)
        answer = real(self, *args, **kwargs)
        act()
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, method, around)
        # The act is part of the catalog's call, and on a busy machine may take longer than an answer should: the cycle
        # would go on without the answer, and the act would be done after later steps.
        patch.setattr(catalog, "ANSWER_SECONDS", PATIENCE)
        yield


def check_verified(world: World) -> None:
    """`verify` finds nothing wrong in any table of the landing."""
    landing = world.landing
    with world.session() as session:
        histories = [read_history(session.tables, t, landing.branch, progress=lambda _: None) for t in landing.tables]
    wrong = [str(f) for f in check_landing(landing, histories) if f.level is Severity.WRONG]
    assert wrong == [], wrong
