# SPDX-License-Identifier: Apache-2.0
"""Tables are looked at in the background, for those who may see what is in them, and only while somebody wants it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

from airflow_provider_lakecommit.core.budgets import PendingBudget
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.page import table_reader
from airflow_provider_lakecommit.page.answers import landing_of
from airflow_provider_lakecommit.page.declared_landings import DeclaredLanding
from airflow_provider_lakecommit.page.landing_tables import LandingTables
from airflow_provider_lakecommit.page.table_answers import SamplesAnswer
from airflow_provider_lakecommit.page.table_reader import TableReader, TableSeen, due_questions
from airflow_provider_lakecommit.page.watched import TableLooks, table_looks
from airflow_provider_lakecommit.table_looks.question import FileCounts, Part, Sample, TableAnswer, TableQuestion
from tests.support import waiting
from tests.unit.page.test_landings import row

ORDERS = DeclaredLanding("orders", "shop.orders", "land", True, "lake", "main", "shop.dead", PendingBudget(files=9))
LETTER = Sample(
    partition="orders[0]",
    offset=7,
    at=None,
    kind="not_json",
    reason="no",
    key=None,
    value=Part(size=1, text="{"),
    headers=(),
)
FILES = FileCounts(files=40, bytes=1, limit=2, small=39)


class Catalogs:
    """Answers whatever is asked, unless it is away."""

    def __init__(self) -> None:
        self.away = ""
        self.asked: list[TableQuestion] = []

    def __call__(
        self, questions: Sequence[TableQuestion], catalogs: Mapping[str, Mapping[str, str]]
    ) -> list[TableAnswer]:
        assert all(q.connection in catalogs for q in questions)
        self.asked += questions
        if self.away:
            return [TableAnswer(trouble=self.away) for _ in questions]
        return [TableAnswer(samples=(LETTER,)) if q.landing else TableAnswer(files=FILES) for q in questions]


def properties(connection: str) -> Mapping[str, str]:
    if connection == "missing":
        raise SpecError("the Airflow connection 'missing' does not exist")
    return {"type": "rest"}


@dataclass(frozen=True, kw_only=True)
class User:
    dags: frozenset[str] = frozenset({"land"})
    logs: bool = True

    def sees_logs(self, dag: str) -> bool:
        return self.logs


@pytest.fixture
def catalogs(monkeypatch: pytest.MonkeyPatch) -> Catalogs:
    for name, value in {"TICK_SECONDS": 0.01, "LEAST_REST": 0.01, "MOST_REST": 0.02}.items():
        monkeypatch.setattr(table_reader, name, value)
    return Catalogs()


@pytest.fixture
def reader(catalogs: Catalogs) -> Iterator[TableReader]:
    made = TableReader(properties, samples=True, ask=catalogs)
    yield made
    made.close()


def landing_tables(reader: TableReader | None, *declared: DeclaredLanding) -> LandingTables:
    return LandingTables(lambda: declared, reader)


def until(there: Callable[[], object]) -> None:
    waiting.until(lambda: bool(there()), 10, "a look", 0.01)


def test_files_and_budgets_stand_in_the_row_of_who_may_read_the_dag(reader: TableReader, catalogs: Catalogs) -> None:
    tables, seen = landing_tables(reader, ORDERS), row("orders", dags=("land",))
    until(lambda: tables.of(seen, User()).files)
    told = landing_of(seen, (), 0.0, tables.of(seen, User()))
    assert told.files is not None
    assert told.budget is not None
    assert (told.files.small, told.files.files, told.files.trouble, told.budget.files) == (39, 40, "", 9)
    assert told.files.as_of is not None
    nobody = landing_of(seen, (), 0.0, tables.of(seen, User(dags=frozenset())))
    assert (nobody.files, nobody.budget) == (None, None)
    other = row("orders", dags=("another",))
    assert tables.of(other, User(dags=frozenset({"land", "another"}))).declared is None, "who declares it runs it"
    assert {q.landing for q in catalogs.asked} == {""}, "no sample is looked at that nobody asks for"


def test_samples_are_for_who_may_read_the_logs_of_the_dag_that_declares_it(reader: TableReader) -> None:
    tables, seen = landing_tables(reader, ORDERS), row("orders", dags=("land", "another"))
    until(lambda: tables.samples(seen, User()).samples)
    told = tables.samples(seen, User())
    assert told.samples[0].value is not None
    assert (told.samples[0].partition, told.samples[0].value.text, told.hidden) == ("orders[0]", "{", "")

    def hidden(answer: SamplesAnswer) -> str:
        assert answer.samples == []
        return answer.hidden

    assert "task logs of DAG land" in hidden(tables.samples(seen, User(logs=False)))
    assert "no parsed DAG that you may read" in hidden(tables.samples(seen, User(dags=frozenset({"another"}))))
    assert "no parsed DAG" in hidden(tables.samples(row("orders", dags=()), User()))
    without = landing_tables(reader, replace(ORDERS, dead_letter_table=""))
    assert "no dead_letter_table" in hidden(without.samples(seen, User()))
    assert "page_tables" in hidden(landing_tables(None, ORDERS).samples(seen, User()))


def test_where_the_deployment_does_not_allow_samples_none_is_looked_at(catalogs: Catalogs) -> None:
    reader = TableReader(properties, ask=catalogs)
    tables, seen = landing_tables(reader, ORDERS), row("orders", dags=("land",))
    assert "page_tables = samples" in tables.samples(seen, User()).hidden
    reader.samples(ORDERS)
    until(lambda: tables.of(seen, User()).files)
    reader.close()
    assert [q.landing for q in catalogs.asked] == [""]


def test_a_catalog_that_goes_away_leaves_what_was_seen_with_its_time(
    reader: TableReader, catalogs: Catalogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_reader, "FILES_SECONDS", 0.0)
    reader.about((ORDERS, replace(ORDERS, name="clicks", connection="missing")))
    until(lambda: reader.files(ORDERS))
    before = reader.files(ORDERS)
    catalogs.away = "catalog lake is away"
    until(lambda: (found := reader.files(ORDERS)) and found.trouble)
    after = reader.files(ORDERS)
    assert before is not None
    assert after is not None
    assert after.answer == before.answer
    assert after.as_of is not None
    assert after.as_of >= (before.as_of or 0)
    gone = reader.files(replace(ORDERS, connection="missing"))
    assert gone is not None
    assert (gone.as_of, "does not exist" in gone.trouble) == (None, True)
    catalogs.away = ""
    until(lambda: (found := reader.files(ORDERS)) and not found.trouble)


def test_samples_are_forgotten_when_nobody_asks_any_more_and_looks_end(
    reader: TableReader, catalogs: Catalogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader.about((ORDERS,))
    until(lambda: reader.samples(ORDERS))
    monkeypatch.setattr(table_reader, "KEPT_SECONDS", 0.05)
    until(lambda: not any(t.name == "lakecommit-page-tables" for t in threading.enumerate()))
    asked = len(catalogs.asked)
    time.sleep(0.1)
    assert len(catalogs.asked) == asked, "nobody looks"
    monkeypatch.setattr(table_reader, "KEPT_SECONDS", 60.0)
    assert reader.samples(ORDERS) is None
    assert reader.files(ORDERS) is not None
    reader.about((ORDERS,))
    until(lambda: reader.samples(ORDERS))


def test_what_cannot_be_looked_at_does_not_end_the_looking(
    reader: TableReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: str) -> Mapping[str, str]:
        raise OSError("no file is left to be opened")

    monkeypatch.setattr(reader, "_properties", broken)
    reader.about((ORDERS,))
    time.sleep(0.1)
    assert reader.files(ORDERS) is None
    monkeypatch.setattr(reader, "_properties", properties)
    until(lambda: reader.files(ORDERS))


def test_who_waits_comes_first_and_a_catalog_that_never_answered_last() -> None:
    files = [
        TableQuestion(connection=c, table=t) for c, t in (("away", "a"), ("lake", "b"), ("lake", "c"), ("lake", "d"))
    ]
    samples = TableQuestion(connection="lake", table="dead", landing="orders")
    seen = {
        files[0]: TableSeen(looked=0.0, trouble="it is away"),
        files[1]: TableSeen(looked=500.0, as_of=500.0),
        files[2]: TableSeen(looked=990.0, as_of=990.0),
    }
    assert due_questions(1000.0, [samples], files, seen) == [samples, files[3], files[1], files[0]]
    known = {**seen, samples: TableSeen(looked=980.0)}
    assert due_questions(1000.0, [samples], files, known) == [files[3], files[1], files[0]]
    many = [TableQuestion(connection="lake", table=f"t{n}") for n in range(500)]
    assert len(due_questions(0.0, [], many, {})) == table_reader.MOST_AT_ONCE


def test_the_option_says_what_is_read_of_tables() -> None:
    assert [table_looks(text) for text in ("none", " Files ", "samples")] == list(TableLooks)
    with pytest.raises(SpecError, match="none of none, files, samples"):
        table_looks("values")
