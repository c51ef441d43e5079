# SPDX-License-Identifier: Apache-2.0
"""Rejects of an evolving table, with the table's current type.

Contract: pure. The decoder's reason is kept; for a value that its column cannot take, the column's type is appended. If
a table's types change, a dead letter must name the type it was evaluated with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyiceberg.schema import Schema

from airflow_provider_lakecommit.formats import Reject

_PREFIX = "the table has"


def with_types(rejects: Sequence[Reject], schema: Schema) -> tuple[Reject, ...]:
    """Return the rejects with the types of their columns.

    :param schema: the schema they were evaluated with
    """
    return tuple(_typed(reject, schema) for reject in rejects)


def _typed(reject: Reject, schema: Schema) -> Reject:
    if reject.kind != "wrong_value" or reject.column is None or _PREFIX in reject.reason:
        return reject
    try:
        kind = schema.find_type(reject.column)
    except ValueError:
        return reject
    return replace(reject, reason=f"{reject.reason} ({_PREFIX} {kind})" if kind.is_primitive else reject.reason)
