# SPDX-License-Identifier: Apache-2.0
"""Names that no table should have, though records may.

Contract: pure. A name is usable if Iceberg, Spark and this package mean the same column by it. A point in it would make
``a.b`` two columns; names that are no text for UTF-8, or that a reader cannot see, are nobody's column.
"""

from __future__ import annotations

__all__ = ["unusable"]

LONGEST = 255


def unusable(name: str) -> str | None:
    """Why a field cannot become a column, or ``None``."""
    if not name.strip():
        return "its name is empty"
    if name != name.strip():
        return "its name begins or ends with a blank"
    if "." in name:
        return "its name has a point, which stands for a column within another"
    if not name.isprintable():
        return "its name has characters that cannot be printed"
    return f"its name is longer than {LONGEST} characters" if len(name) > LONGEST else None
