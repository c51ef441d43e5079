# SPDX-License-Identifier: Apache-2.0
"""Rejects of a table that evolves, with the type that the table has by now.

Contract: pure. What a decoder says of a value is kept; of a value that its column cannot take it is added what the
column is. Where a table's types change, a dead letter has to tell by which one it was judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyiceberg.schema import Schema

from airflow_provider_lakecommit.formats import Reject

__all__ = ["with_types"]

_SAYS = "the table has"


def with_types(rejects: Sequence[Reject], schema: Schema) -> tuple[Reject, ...]:
    """The rejects with the types of their columns.

    :param schema: by which they were judged
    """
    return tuple(_typed(reject, schema) for reject in rejects)


def _typed(reject: Reject, schema: Schema) -> Reject:
    if reject.kind != "wrong_value" or reject.column is None or _SAYS in reject.reason:
        return reject
    try:
        kind = schema.find_type(reject.column)
    except ValueError:
        return reject
    return replace(reject, reason=f"{reject.reason} ({_SAYS} {kind})" if kind.is_primitive else reject.reason)
