# SPDX-License-Identifier: Apache-2.0
"""The SQL of the documentation reads what its page has landed.

Here is the one list of SQL that is not run, each with the reason; none is on it that is run, or that no page shows.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.test_docs_played import reader
from tests.support.doc_happenings import Reader, happen
from tests.support.doc_play import script
from tests.support.doc_sql import duck, statements
from tests.support.doc_texts import ROOT

__all__ = ["reader"]

pytestmark = pytest.mark.integration

PAGE = ROOT / "docs" / "guides" / "read.rst"
RUN = re.compile(r"LOAD iceberg|SELECT .* FROM iceberg_scan\('[^']+'\).*")
"""What DuckDB reads without a catalog."""
NOT_RUN = {
    r"(INSTALL|CREATE SECRET|ATTACH) .*": "a REST catalog behind a login, and an extension from DuckDB's own servers",
    r"SELECT count\(\*\) FROM lake\.shop\.orders": "the query of the catalog that is attached there",
    r"MERGE INTO shop\.customers .*": "needs changes and a table for them: tests/faults/test_envelopes.py runs it",
    r"(CREATE TABLE|INSERT INTO|ALTER TABLE) (heartbeat|debezium_signal|customers) .*": (
        "PostgreSQL's: tests/worker/test_debezium.py runs it"
    ),
    r"DELETE FROM shop\.customers .*": "an engine's that writes: tests/worker/test_debezium.py runs it",
    r"SELECT (date\(ts\)|\*|committed_at,) .*": "Spark's and Trino's: there is no Iceberg runtime for our Spark yet",
}
PLACE = re.compile(r"(?<=iceberg_scan\()'[^']+'")


def excused(statement: str) -> list[str]:
    return [] if RUN.fullmatch(statement) else [each for each in NOT_RUN if re.fullmatch(each, statement)]


def test_all_sql_is_run_or_on_the_list_once() -> None:
    left = [each for each in statements() if not RUN.fullmatch(each)]
    assert [each for each in left if len(excused(each)) != 1] == []
    assert {pattern for each in left for pattern in excused(each)} == set(NOT_RUN)


def test_what_pages_show_reads_in_duckdb_what_was_landed(reader: Reader, tmp_path: Path) -> None:
    for line in script(PAGE):
        if line.kind == "happens":
            happen(reader, line.text)
        elif line.text.startswith("lakecommit land"):
            reader.stage.run(line)
    printed = next(
        found for text in reader.stage.printed if (found := re.search(r"SELECT \* FROM iceberg_scan.*", text))
    )
    place = PLACE.search(printed[0])
    assert place is not None
    shown = [PLACE.sub(place[0], each) for each in statements() if RUN.fullmatch(each)]
    # The README shows what `lakecommit land` prints, and so it does.
    assert printed[0] in shown
    with duck(tmp_path / "extensions") as engine:
        engine.execute("LOAD iceberg")
        answers = [engine.execute(each).fetchall() for each in shown if each.startswith("SELECT")]
    whole, days = sorted(answers, key=len, reverse=True)
    assert len(whole) == 400
    assert (sum(orders for _, orders, _ in days), sum(amount for *_, amount in days)) == (400, 600)
