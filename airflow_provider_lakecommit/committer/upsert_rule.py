# SPDX-License-Identifier: Apache-2.0
"""What a publish is told of an upserting landing; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertRule:
    """The key columns of a table, and the column that orders the changes of a key before their offsets."""

    key: tuple[str, ...]
    order: str | None = None
