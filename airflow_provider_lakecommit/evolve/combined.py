# SPDX-License-Identifier: Apache-2.0
"""Several schemas that records were written with, as one answer of a source of wanted columns.

Contract: pure. The schemas are taken one after the other, each held against the table as those before it want it, so
that the type that holds all of them is wanted. What does not fit is asked last, once everything is as wide as it can
be. Limits of a table are for whoever changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from airflow_provider_lakecommit.evolve.changes import OF_SCHEMAS, UNLIMITED, LeftOut, evolution
from airflow_provider_lakecommit.evolve.misfits import Misfit, Unreadable
from airflow_provider_lakecommit.evolve.schema import evolved_schema
from airflow_provider_lakecommit.evolve.wanted import Wanted

__all__ = ["combined"]

T = TypeVar("T")


def combined(
    schema: Schema,
    written: Sequence[T],
    before: Sequence[T],
    wants: Callable[[Schema, T], tuple[StructType, Iterable[LeftOut]]],
    unfit: Callable[[Schema, T], Iterable[Misfit]],
    told_by: str,
) -> Wanted:
    """What all of them want of a table.

    :param before: those of records that have had their fate, of which is not asked what does not fit
    :param wants: the columns that one of them wants, and what of it cannot be one
    :param unfit: what of one of them does not fit
    """
    left_out, misfits, now = list[LeftOut](), list[Misfit | Unreadable](), schema
    for one, judged in (*((one, True) for one in written), *((one, False) for one in before if one not in written)):
        columns, without = wants(now, one)
        found = evolution(now, columns, widen=True, limits=UNLIMITED)
        left_out += [*without, *found.left_out]
        misfits += found.misfits if judged else ()
        now = evolved_schema(now, found.changes, last_id=max(now.field_ids, default=0), schema_id=0)
    misfits += [misfit for one in written for misfit in unfit(now, one)]
    return Wanted(
        columns=now.as_struct(),
        told_by=told_by,
        left_out=tuple(dict.fromkeys(left_out)),
        misfits=tuple(dict.fromkeys(misfits)),
        limits=OF_SCHEMAS,
    )
