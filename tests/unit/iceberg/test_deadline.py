# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from contextvars import ContextVar
from pathlib import Path

import pytest

from airflow_provider_lakecommit.exceptions import CatalogError
from airflow_provider_lakecommit.iceberg import catalog as table
from airflow_provider_lakecommit.iceberg.clients import within
from tests.fakes.lake import Lake
from tests.support.waiting import PATIENCE, until

PLACE: ContextVar[str] = ContextVar("PLACE", default="elsewhere")


class EndedError(BaseException):
    """No Exception: what ends a process."""


def test_a_call_gives_what_it_gives_in_the_callers_context() -> None:
    token = PLACE.set("here")
    assert within(PATIENCE, PLACE.get) == "here"
    PLACE.reset(token)


@pytest.mark.parametrize("error", [ValueError("no"), TimeoutError("its own"), EndedError()])
def test_a_call_raises_what_it_raises(error: BaseException) -> None:
    def call() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        within(PATIENCE, call)
    assert caught.value is error


def test_a_call_without_an_answer_is_given_up_and_may_still_end() -> None:
    gate, ended = threading.Event(), threading.Event()

    def call() -> None:
        gate.wait(PATIENCE)
        ended.set()

    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
        within(0.05, call)
    assert not ended.is_set()
    gate.set()
    until(ended.is_set)


def test_a_catalog_that_does_not_answer_is_away_and_is_requested_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, gate = Lake(tmp_path), threading.Event()
    lake.create()
    monkeypatch.setattr(table, "ANSWER_SECONDS", 0.2)
    with monkeypatch.context() as patch:
        patch.setattr(lake.catalog, "load_table", lambda _: gate.wait(PATIENCE))
        with pytest.raises(CatalogError, match="LC3361"):
            lake.tables.load(lake.name)
    monkeypatch.setattr(table, "ANSWER_SECONDS", PATIENCE)
    assert lake.tables.load(lake.name).name() == tuple(lake.name.split("."))
    gate.set()
