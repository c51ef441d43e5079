# SPDX-License-Identifier: Apache-2.0
"""The schema of records, as a spec states it: as a mapping, as a text, or as the name of a file that holds it.

Contract: a file is read once, when its spec is, so that a landing holds the schema itself: a file that changes makes
another version of the spec. Its name is relative to the spec.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["schema_of_file", "schema_text"]

ENDINGS = (".avsc", ".proto")
"""Of the names of such files."""


def schema_of_file(key: str, stated: Any, folder: Path) -> tuple[Any, list[str]]:
    """What is stated under a key, or what the file holds that it names; and what is wrong with that."""
    if not isinstance(stated, str) or "\n" in stated or not stated.endswith(ENDINGS):
        return stated, []
    try:
        return (folder / stated).read_text(encoding="utf-8"), []
    except (OSError, ValueError) as e:
        why = e.strerror if isinstance(e, OSError) else "it is not UTF-8"
        return "", [f"{key}: {stated!r} is no file that can be read: {why} [LC1148]"]


def schema_text(stated: Any) -> Any:
    """A schema as text: JSON without anything that means nothing in it, all else as it is."""
    try:
        return (
            json.dumps(json.loads(stated) if isinstance(stated, str) else stated, sort_keys=True) if stated else stated
        )
    except (TypeError, ValueError):
        return stated
