# SPDX-License-Identifier: Apache-2.0
"""Making tables ready: what is a first run, what joins, and what needs a user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_lakecommit.cycle.commit.prepared import prepare_for_commit
from airflow_provider_lakecommit.cycle.plan.ready_tables import prepare
from airflow_provider_lakecommit.exceptions import LedgerError, SourceError, TableError
from tests.fakes.session import DATA, DEAD, P0, P1, FakeLanding


def test_a_first_run_makes_an_initial_entry_where_the_landing_starts(make_landing: Callable[..., FakeLanding]) -> None:
    landing = make_landing(start="latest")
    (table,) = prepare(landing.session, landing.source.watermarks()).tables
    assert dict(table.ledger.section.starts) == {P0: 20, P1: 10}
    assert len(landing.snapshots()) == 1


def test_nothing_is_made_by_a_dry_one(landing: FakeLanding) -> None:
    (table,) = prepare(landing.session, landing.source.watermarks(), dry=True).tables
    assert dict(table.ledger.section.starts) == {P0: 0, P1: 0}
    assert landing.session.tables.find(DATA) is None


def test_a_table_that_joins_later_starts_where_the_data_tables_ledger_ends(landing: FakeLanding) -> None:
    landing.cycle()
    joined = landing.connect(dead_letter_table=DEAD)
    _, dead = prepare(joined, landing.source.watermarks()).tables
    assert dict(dead.ledger.section.starts) == {P0: 20, P1: 10}


def test_a_table_that_was_dropped_is_no_first_run_while_the_log_remembers_it(landing: FakeLanding) -> None:
    landing.cycle()
    landing.catalog.drop_table(DATA)
    message = rf"^{DATA} of catalog fake has no ledger.* recreated, or this is another catalog\..*reset assert"
    with pytest.raises(LedgerError, match=rf"{message}.*LC6015"):
        prepare(landing.session, landing.source.watermarks())
    assert landing.session.tables.find(DATA) is None


def test_two_landings_of_a_topic_do_not_share_a_table(landing: FakeLanding) -> None:
    landing.cycle()
    with pytest.raises(TableError, match="LC3003"):
        prepare(landing.connect(name="more"), landing.source.watermarks())


def test_another_cluster_is_refused(landing: FakeLanding) -> None:
    landing.cycle()
    landing.source.cluster_id = "elsewhere"
    with pytest.raises(SourceError, match="LC6012"):
        prepare(landing.session, landing.source.watermarks())


def test_for_a_commit_a_table_that_fails_is_named_and_holds_up_no_other(
    make_landing: Callable[..., FakeLanding],
) -> None:
    landing = make_landing(dead_letter_table=DEAD)
    landing.cycle()
    landing.catalog.drop_table(DEAD)
    prepared = prepare_for_commit(landing.session)
    assert [t.name for t in prepared.tables] == [DATA]
    assert list(prepared.failures) == [DEAD]


class TestCatalogWithoutTags:
    """It takes a commit that sets a tag, and keeps the branch alone."""

    def test_the_plan_is_refused_by_name_and_nothing_is_opened(self, landing: FakeLanding) -> None:
        landing.catalog.keeps_tags = False
        for _ in range(2):
            with pytest.raises(TableError, match="LC3039"):
                landing.open()
        assert landing.kinds() == []
        # Whoever tries for days leaves one snapshot.
        assert len(landing.snapshots()) == 1

    def test_one_that_loses_them_later_loses_no_row(self, landing: FakeLanding) -> None:
        opened = landing.open()
        landing.report(opened)
        landing.close(opened=opened)
        landing.catalog.keeps_tags = False
        with landing.session.tables.load(DATA).manage_snapshots() as refs:
            refs.remove_tag("lakecommit-main")
        before = len(landing.snapshots())
        for _ in range(3):
            with pytest.raises(TableError, match="LC3039"):
                landing.open("b")
        assert len(landing.snapshots()) == before + 1
        landing.catalog.keeps_tags = True
        landing.source.ends = {P0: 30, P1: 10}
        assert landing.cycle("c").rows == 10
        assert sum(int(s.get("added-records", 0)) for s in landing.snapshots()) == 40
        assert set(landing.session.tables.load(DATA).metadata.refs) == {"main", "lakecommit-main"}

    def test_an_answer_that_reports_no_tag_is_no_proof(self, landing: FakeLanding) -> None:
        answer = landing.catalog.commit_table

        def short(*request: Any) -> Any:
            message = answer(*request)
            refs = {name: ref for name, ref in message.metadata.refs.items() if name == "main"}
            return message.model_copy(update={"metadata": message.metadata.model_copy(update={"refs": refs})})

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(landing.catalog, "commit_table", short)
            assert len(landing.open().slices) == 3
