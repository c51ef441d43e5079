# SPDX-License-Identifier: Apache-2.0
"""Several schemas that records were written with, as one answer of a source of wanted columns.

Contract: pure. What all of them have is joined first (:mod:`~airflow_provider_lakecommit.formats.evolution.joined`), so
that the type that holds all of them is wanted, whichever is met first. What does not fit is asked then, once everything
is as wide as it can be. Limits of a table are for whoever changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from airflow_provider_lakecommit.formats.evolution.changes import OF_SCHEMAS, UNLIMITED, LeftOut, evolution
from airflow_provider_lakecommit.formats.evolution.joined import JoinedColumns
from airflow_provider_lakecommit.formats.evolution.misfits import Misfit, Unreadable
from airflow_provider_lakecommit.formats.evolution.schema import evolved_schema
from airflow_provider_lakecommit.formats.evolution.wanted import Wanted

T = TypeVar("T")


def combined(
    schema: Schema,
    written: Sequence[T],
    before: Sequence[T],
    wants: Callable[[Schema, T, Collection[str]], tuple[StructType, Iterable[LeftOut]]],
    unfit: Callable[[Schema, T], Iterable[Misfit]],
    told_by: str,
) -> Wanted:
    """Return the columns that all of them need in a table.

    :param before: those of records that have had their fate, of which is not asked what does not fit
    :param wants: the columns that one of them wants, and what of it cannot be one; called with the names of new columns
        that others want
    :param unfit: what of one of them does not fit
    """
    left_out, joined = list[LeftOut](), JoinedColumns()
    for one in dict.fromkeys((*written, *before)):
        columns, without = wants(schema, one, [f.name for f in joined.columns.fields])
        joined.add(columns)
        left_out += without
    found = evolution(schema, joined.columns, widen=True, limits=UNLIMITED)
    left_out += [*joined.left_out.values(), *found.left_out]
    now = evolved_schema(schema, found.changes, last_id=max(schema.field_ids, default=0), schema_id=0)
    misfits: list[Misfit | Unreadable] = []
    for one in written:
        misfits += [*evolution(now, wants(now, one, ())[0], widen=True, limits=UNLIMITED).misfits, *unfit(now, one)]
    return Wanted(
        columns=now.as_struct(),
        told_by=told_by,
        left_out=tuple(dict.fromkeys(left_out)),
        misfits=tuple(dict.fromkeys(misfits)),
        limits=OF_SCHEMAS,
    )
