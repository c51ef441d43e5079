# SPDX-License-Identifier: Apache-2.0
"""Names that no table should have, though records may.

A name is usable if Iceberg, Spark and this package mean the same column by it: no dot, valid UTF-8, visible characters,
and not the name of one of Iceberg's metadata columns.
"""

from __future__ import annotations

import re
from functools import lru_cache

from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.types import LongType, NestedField

from airflow_provider_lakecommit.landing import RESERVED as METADATA

LONGEST = 255
_AS_IT_IS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESERVED = METADATA | {"_change_type", "_change_ordinal", "_commit_snapshot_id"}


class TakenNames:
    """Names of sibling columns, to detect clashes: in engines that ignore case, and in files, whose columns have
    letters, digits and ``_`` only.
    """

    def __init__(self) -> None:
        self._as_read: dict[str, str] = {}
        self._in_files: dict[str, str] = {}

    def add(self, name: str) -> None:
        self._as_read[name.casefold()] = name
        self._in_files[_in_file(name)] = name

    def clash(self, name: str) -> str | None:
        if (like := self._as_read.get(name.casefold())) is not None:
            return f"its name differs from column {like} only in case"
        if (like := self._in_files.get(_in_file(name))) is not None:
            return f"in a file it has the same name as column {like}; add it by hand under another name"
        return None


@lru_cache(4_096)
def _in_file(name: str) -> str:
    if _AS_IT_IS.fullmatch(name):
        return name
    return sanitize_column_names(Schema(NestedField(1, name, LongType(), required=False))).fields[0].name


def unusable(name: str, *, top: bool = True) -> str | None:
    """Return why a field cannot become a column, or ``None``.

    :param top: False for a nested column
    """
    if top and name.casefold() in RESERVED:
        return "Iceberg reserves that name for metadata, and Spark could not read the table"
    if not name.strip():
        return "its name is empty"
    if name != name.strip():
        return "its name begins or ends with a blank"
    if "." in name:
        return "its name has a dot, which means a nested column"
    if not name.isprintable():
        return "its name has characters that cannot be printed"
    return f"its name is longer than {LONGEST} characters" if len(name) > LONGEST else None
