# SPDX-License-Identifier: Apache-2.0
"""Names that no table should have, though records may.

Contract: pure. A name is usable if Iceberg, Spark and this package mean the same column by it. A point in it would make
``a.b`` two columns; names that are no text for UTF-8, or that a reader cannot see, are nobody's column. Spark reads no
table that has a column of the name of one of Iceberg's metadata columns.
"""

from __future__ import annotations

from airflow_provider_lakecommit.declared.table import RESERVED as METADATA

__all__ = ["RESERVED", "unusable"]

LONGEST = 255
RESERVED = METADATA | {"_change_type", "_change_ordinal", "_commit_snapshot_id"}
"""The metadata columns that Iceberg adds to each table when it is read, and to its changes."""


def unusable(name: str, *, top: bool = True) -> str | None:
    """Why a field cannot become a column, or ``None``.

    :param top: is it to be a column of the table itself, not one within another?
    """
    if top and name.casefold() in RESERVED:
        return "Iceberg has a metadata column of that name, so that Spark could not read the table"
    if not name.strip():
        return "its name is empty"
    if name != name.strip():
        return "its name begins or ends with a blank"
    if "." in name:
        return "its name has a point, which stands for a column within another"
    if not name.isprintable():
        return "its name has characters that cannot be printed"
    return f"its name is longer than {LONGEST} characters" if len(name) > LONGEST else None
