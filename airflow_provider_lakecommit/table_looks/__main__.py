# SPDX-License-Identifier: Apache-2.0
"""The process that looks: reads questions from its input, as
:func:`~airflow_provider_lakecommit.table_looks.process.ask` sends them, and prints a line of JSON for each answer as
soon as it has it.

Contract: properties of catalogs, secrets among them, come by the input alone. It has little weight, in processors and
in memory, and ends by itself after :data:`MOST_SECONDS`, whatever became of who started it.

Failure story: a catalog that is away is asked once; all other questions to it have the same answer then. Whatever goes
wrong with one table is the answer of that table.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from airflow_provider_lakecommit.exceptions import CatalogError, LakecommitError, StorageError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.inspect.small_files import table_files
from airflow_provider_lakecommit.table_looks.dead_letter_samples import newest_samples
from airflow_provider_lakecommit.table_looks.process import MOST_SECONDS
from airflow_provider_lakecommit.table_looks.question import FileCounts, TableAnswer, TableQuestion

MOST_MEMORY = 1 << 30
"""Bytes that it may write to; a file of a few kilobytes may hold gigabytes, packed."""
NICE = 10
MOST_COUNTED = 20_000
"""Data files of a table up to which each is looked at."""


class CatalogLook:
    """Answers questions of some catalogs.

    :param properties: of each catalog, by the connection that names it
    """

    def __init__(self, properties: Mapping[str, Mapping[str, str]]) -> None:
        self._tables = {name: Tables(of, name) for name, of in properties.items()}
        self._away: dict[str, str] = {}

    def answer(self, question: TableQuestion) -> TableAnswer:
        """One of them."""
        name = question.connection
        if (away := self._away.get(name)) is not None:
            return TableAnswer(trouble=away)
        try:
            return self._looked(self._tables[name], question)
        except LakecommitError as e:
            if isinstance(e, CatalogError) and not isinstance(e, StorageError):
                self._away[name] = str(e)
            return TableAnswer(trouble=str(e))
        except Exception as e:  # whatever libraries say of files that are gone, damaged or too large
            return TableAnswer(trouble=self._tables[name].describe(e))

    def _looked(self, tables: Tables, question: TableQuestion) -> TableAnswer:
        table = tables.load(question.table)
        if question.landing:
            return TableAnswer(samples=newest_samples(table, question.branch, question.landing))
        told = table_files(table, question.branch)
        if told is not None and told.files <= MOST_COUNTED:
            told = table_files(table, question.branch, count=True)
        if told is None:
            return TableAnswer()
        return TableAnswer(files=FileCounts(files=told.files, bytes=told.bytes, limit=told.limit, small=told.small))


def main() -> int:
    """`python -m airflow_provider_lakecommit.table_looks`."""
    signal.alarm(int(MOST_SECONDS) + 1)
    os.nice(NICE)
    with suppress(OSError, ValueError):
        # Not every system has this limit.
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    asked: dict[str, Any] = json.load(sys.stdin)
    look = CatalogLook(asked["catalogs"])
    for number, told in enumerate(asked["questions"]):
        print(json.dumps([number, look.answer(TableQuestion(**told)).to_json()]), flush=True)
    return 0


if __name__ == "__main__":
    # Calls that hang have threads of their own, which are not waited for.
    os._exit(main())
