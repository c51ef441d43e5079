# SPDX-License-Identifier: Apache-2.0
"""The unique key of a table's rows, by its ledger; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from airflow_provider_lakecommit.core import RESET_KEY, LedgerSection
from airflow_provider_lakecommit.exceptions import LedgerError


class UpsertRule(NamedTuple):
    """The key columns of a table, and the column that orders the changes of a key before their offsets."""

    key: tuple[str, ...]
    order: str | None = None


def check_key(table: str, landing: str, key: Iterable[str], sections: Iterable[LedgerSection]) -> None:
    """Check that everything in a table was landed by the key of a landing.

    :param key: no columns: it appends
    :raises LedgerError: some of it was not
    """
    declared = (*key,)
    for s in sections:
        if not s.covered or s.upsert_key == declared:
            continue
        if s.landing == landing:
            raise LedgerError(
                "LC3055",
                f"landing {landing} declares {key_text(declared)}, but {table} has {key_text(s.upsert_key)}. "
                f"`{RESET_KEY} SPEC` shows which rows have to go, and changes the table with `--yes`; or change "
                "`upsert.key` back",
            )
        raise LedgerError(
            "LC3056",
            f"landing {landing} declares {key_text(declared)}, but landing {s.landing} lands {key_text(s.upsert_key)} "
            f"in {table}: give one of them another table, or declare the same `upsert.key` in both",
        )


def key_text(key: Iterable[str]) -> str:
    return f"one row per {', '.join(key)}" if key else "one row per record"
