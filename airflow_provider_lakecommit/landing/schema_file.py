# SPDX-License-Identifier: Apache-2.0
"""The schema of records in a spec: a mapping, a text, or the name of a file.

Contract: a file is read once, with its spec, so that a landing holds the schema itself; a changed file gives another
spec version. File names are relative to the spec.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ENDINGS = (".avsc", ".proto")
"""Suffixes of schema files."""


def schema_of_file(key: str, stated: Any, folder: Path) -> tuple[Any, list[str]]:
    """Return the schema under a key, or in the file that it names; and the mistakes in it."""
    if not isinstance(stated, str) or "\n" in stated or not stated.endswith(ENDINGS):
        return stated, []
    try:
        return (folder / stated).read_text(encoding="utf-8"), []
    except (OSError, ValueError) as e:
        why = e.strerror if isinstance(e, OSError) else "it is not UTF-8"
        return "", [f"{key}: {stated!r} cannot be read: {why} [LC1148]"]


def schema_text(stated: Any) -> Any:
    """Return a schema as text: JSON without insignificant parts, other texts unchanged."""
    try:
        return (
            json.dumps(json.loads(stated) if isinstance(stated, str) else stated, sort_keys=True) if stated else stated
        )
    except (TypeError, ValueError):
        return stated
