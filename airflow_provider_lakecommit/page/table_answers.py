# SPDX-License-Identifier: Apache-2.0
"""What the status API answers of the tables of a landing: files, budgets, and samples of dead letters.

Contract: that of :mod:`~airflow_provider_lakecommit.page.answers`. Samples hold what records hold: they are told to
those who may read the task logs of the DAG that declares the landing, where the deployment allows them; all others are
told why there are none. A sample is cut, and its text may hold any character.
"""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel

from airflow_provider_lakecommit.page.cycle_answers import time_or_none
from airflow_provider_lakecommit.page.declared_landings import DeclaredLanding
from airflow_provider_lakecommit.page.table_reader import TableSeen
from airflow_provider_lakecommit.table_looks.question import Sample

__all__ = ["BudgetAnswer", "FilesAnswer", "SampleAnswer", "SamplesAnswer", "budget_of", "files_of", "samples_of"]

UNDECLARED = "no parsed DAG that you may read says where the tables of this landing are"
NO_TABLE = "the landing has no dead_letter_table"
SWITCHED_OFF = "values of records are not shown here: [lakecommit] page_tables = samples allows it"
NO_RIGHT = "they are shown to those who may read the task logs of DAG {}"


class FilesAnswer(BaseModel):
    """Files of the data table as of a time; ``small`` are those of less than ``limit`` bytes. ``trouble`` is what
    keeps it from being newer.
    """

    files: int | None
    bytes: int | None
    small: int | None
    limit: int | None
    as_of: datetime | None
    trouble: str


class BudgetAnswer(BaseModel):
    """How much may be under way or wait, in each table; ``null`` is no limit."""

    open_cycles: int | None
    slices: int | None
    files: int | None
    bytes: int | None


class PartAnswer(BaseModel):
    """The beginning of a key or a value: text, or Base64 where it is no UTF-8. ``size`` are all its bytes."""

    size: int
    text: str | None
    base64: str | None


class SampleAnswer(BaseModel):
    """A rejected record. Of its headers only the names are told."""

    partition: str
    offset: int
    at: datetime | None
    kind: str
    reason: str
    key: PartAnswer | None
    value: PartAnswer | None
    headers: list[str]


class SamplesAnswer(BaseModel):
    """The newest few of each kind as of a time, the newest first; or why there are none for this user."""

    samples: list[SampleAnswer]
    as_of: datetime | None
    trouble: str
    hidden: str


def files_of(seen: TableSeen | None) -> FilesAnswer | None:
    """``None`` as long as nobody has looked."""
    if seen is None:
        return None
    found = seen.answer.files
    return FilesAnswer(
        files=None if found is None else found.files,
        bytes=None if found is None else found.bytes,
        small=None if found is None else found.small,
        limit=None if found is None else found.limit,
        as_of=time_or_none(seen.as_of),
        trouble=seen.trouble,
    )


def budget_of(declared: DeclaredLanding | None) -> BudgetAnswer | None:
    """``None`` where no DAG tells it."""
    if declared is None:
        return None
    return BudgetAnswer.model_validate(declared.budget, from_attributes=True)


def samples_of(seen: TableSeen | None, hidden: str = "") -> SamplesAnswer:
    """:param hidden: why none are told"""
    if hidden or seen is None:
        return SamplesAnswer(samples=[], as_of=None, trouble="", hidden=hidden)
    told = [_sample(s) for s in seen.answer.samples]
    return SamplesAnswer(samples=told, as_of=time_or_none(seen.as_of), trouble=seen.trouble, hidden="")


def _sample(s: Sample) -> SampleAnswer:
    return SampleAnswer.model_validate(s, from_attributes=True)
