# SPDX-License-Identifier: Apache-2.0
"""A landing that a user sends elsewhere: what the preview says is what happens, killed or not, and `verify` knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.core.log import Decision
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.cycle.plan.known import ledger_state
from airflow_provider_lakecommit.cycle.plan.open import preview
from airflow_provider_lakecommit.exceptions import LedgerError, SourceError
from airflow_provider_lakecommit.operations.backfill.range_replacement import replace
from airflow_provider_lakecommit.operations.backfill.request import lane_request
from airflow_provider_lakecommit.operations.decisions import delete_back as delete_back_module
from airflow_provider_lakecommit.operations.decisions.delete_back import DeleteBack, delete_back, delete_preview
from airflow_provider_lakecommit.operations.decisions.init_preview import init_preview
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from airflow_provider_lakecommit.operations.decisions.section_init import InitTable
from airflow_provider_lakecommit.operations.decisions.starts import PLAIN, Start, Way
from airflow_provider_lakecommit.status.history import read_history
from airflow_provider_lakecommit.status.verify import check_landing
from tests.faults.test_lanes import LaneWorld, sections
from tests.support.steps import check_verified
from tests.support.waiting import PATIENCE
from tests.support.world import Killed, World, deaths, records

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]


def preview_of(world: World, start: Start, way: Way) -> InitTable:
    with world.session() as session:
        return init_preview(session, start, way).tables[0]


def apply(world: World, start: Start, way: Way) -> Mapping[str, object]:
    with world.session() as session:
        return ledger_init(session, start, way, agreed=init_preview(session, start, way))


def lane(world: World, name: str) -> LaneWorld:
    return LaneWorld(
        landing=world.landing,
        kafka=world.kafka,
        catalog=world.catalog,
        request=lane_request(name=name),
        lines=world.lines,
    )


def short(world: World, text: object) -> str:
    return str(text).replace(str(world.landing.topics), "")


@pytest.fixture
def behind(make_world: Make, produce: Produce) -> World:
    """Two partitions, 10 records of each landed and 20 more there."""
    world = make_world(partitions=2)
    for p in range(2):
        produce(world.landing.topics, records(100 * p, 10), partition=p)
    world.settle()
    for p in range(2):
        produce(world.landing.topics, records(100 * p + 10, 20), partition=p)
    return world


def test_latest_now_and_the_hole_in_a_stream_of_its_own(behind: World, produce: Produce) -> None:
    way = Way(fill="hole")
    preview = preview_of(behind, "latest", way)
    assert short(behind, preview.filled) == "[0] [10, 30), [1] [10, 30)"
    assert not preview.given_up
    apply(behind, "latest", way)
    produce(behind.landing.topics, records(30, 5), partition=0)
    # The live stream is level at once, and the hole is landed next to it.
    assert short(behind, behind.run().published[0].coverage) == "[0] [30, 35)"
    behind.check(Counter([*range(10), *range(100, 110), *range(30, 35)]))
    check_verified(behind)
    lane(behind, "hole").finish()
    behind.check(Counter([*range(35), *range(100, 130)]))
    check_verified(behind)
    assert "left to backfill hole" in notes(behind)
    with pytest.raises(LedgerError, match=r"hole.*LC7218"):
        lane(behind, "hole").run()


def notes(world: World) -> str:
    with world.session() as session:
        histories = [read_history(session.tables, t, "main", progress=lambda _: None) for t in world.landing.tables]
    return "\n".join(map(str, check_landing(world.landing, histories)))


@pytest.mark.heavy
def test_only_the_partitions_that_are_named_move(behind: World) -> None:
    way = Way(fill="hole", only=[(str(behind.landing.topics), 1)])
    assert short(behind, preview_of(behind, "latest", way).filled) == "[1] [10, 30)"
    apply(behind, "latest", way)
    behind.settle()
    behind.check(Counter([*range(30), *range(100, 110)]))
    lane(behind, "hole").finish()
    behind.check(Counter([*range(30), *range(100, 130)]))
    check_verified(behind)
    with behind.session() as session, pytest.raises(SourceError, match=r"\[7\].*LC7046"):
        init_preview(session, "latest", Way(only=[(str(behind.landing.topics), 7)]))


@pytest.mark.heavy
def test_what_the_source_has_removed_of_the_hole_is_given_up_by_name(behind: World) -> None:
    topic = str(behind.landing.topics)
    admin = AdminClient(dict(behind.kafka))
    admin.delete_records([TopicPartition(topic, 0, 15)])[TopicPartition(topic, 0)].result(PATIENCE)
    preview = preview_of(behind, "latest", Way(fill="hole"))
    assert short(behind, preview.given_up) == "[0] [10, 15)"
    assert short(behind, preview.filled) == "[0] [15, 30), [1] [10, 30)"
    apply(behind, "latest", Way(fill="hole"))
    lane(behind, "hole").finish()
    behind.check(Counter([*range(10), *range(15, 30), *range(100, 130)]))
    check_verified(behind)


@pytest.mark.heavy
def test_a_time_is_where_the_source_has_it(behind: World) -> None:
    now = datetime.now(UTC)
    assert not preview_of(behind, now - timedelta(days=1), Way()).given_up
    assert short(behind, preview_of(behind, now + timedelta(days=1), Way()).given_up) == "[0] [10, 30), [1] [10, 30)"


@pytest.mark.heavy
def test_back_over_what_is_landed_reads_it_twice_and_reports_it(behind: World) -> None:
    behind.settle()
    topic = str(behind.landing.topics)
    start, way = {(topic, 0): 5}, Way(again=True)
    plain = preview_of(behind, start, Way())
    assert not plain.again, "without the word nothing is read twice"
    preview = preview_of(behind, start, way)
    assert short(behind, preview.again) == "[0] [5, 30)"
    apply(behind, start, way)
    behind.settle()
    behind.check(Counter([*range(30), *range(5, 30), *range(100, 130)]))
    check_verified(behind)


@pytest.mark.campaign
def test_a_decision_that_dies_is_there_or_not_and_can_be_repeated(behind: World) -> None:
    for step in range(1, 9):
        for when in ("before", "after"):
            name = f"hole-{step}-{when}"
            with deaths(step, when) as counter:  # type: ignore[arg-type]
                try:
                    apply(behind, "latest", Way(fill=name))
                except Killed:
                    pass
                else:
                    assert len(counter.steps) < step
            # A stream that was opened is in every table or in the first ones: both are missing on with.
            if name in sections(behind):
                lane(behind, name).finish()
            behind.settle()
            behind.check(Counter([*range(30), *range(100, 130)]))
            check_verified(behind)


@pytest.fixture
def marked(make_world: Make, produce: Produce) -> World:
    """Rows that say which records they are of, 30 in each of two partitions, and a bad record."""
    world = make_world(metadata_columns=True)
    for p in range(2):
        produce(world.landing.topics, records(100 * p, 30), partition=p)
    produce(world.landing.topics, [("bad", "{")], partition=0)
    world.settle()
    return world


EVERYTHING = Counter([*range(30), *range(100, 130)])


def delete(world: World, start: Start | None, expected: int, way: Way = PLAIN) -> DeleteBack:
    """Do it, if the preview tells as many rows."""
    with world.session() as session:
        found = delete_preview(session, start, way)
        assert sum(t.replaced.rows for t in found.tables) == expected
        delete_back(session, found, decision("reset"))
    return found


def decision(command: str) -> Decision:
    return Decision(command=command, actor="ann", host="here", at=datetime.now(UTC).isoformat(), landing="rows")


def test_back_with_the_rows_deletes_what_was_stated_and_reads_it_again_once(marked: World) -> None:
    topic = str(marked.landing.topics)
    delete(marked, {(topic, 0): 20}, 11)
    marked.check(Counter([*range(20), *range(100, 130)]))
    assert marked.rows("shop.dead") == []
    check_verified(marked)
    marked.settle()
    marked.check(EVERYTHING)
    assert len(marked.rows("shop.dead")) == 1
    # Nothing is landed behind the end of the log.
    assert not delete(marked, "latest", 0).tables
    marked.check(EVERYTHING)


@pytest.mark.heavy
def test_rows_that_others_deleted_need_a_confirmation(marked: World) -> None:
    """They may as well be there and not say which records they are of: then they would be there twice."""
    with marked.session() as session:
        session.tables.load("shop.rows").delete("id == 25")
        topic = str(marked.landing.topics)
        found = delete_preview(session, {(topic, 0): 20})
        assert any(line.startswith("  1 landed rows are no longer in") for line in found.lines()) == (
            found.tables[0].missing == 1
        )
        hard = delete_preview(session, None)
        assert [t.missing for t in hard.tables] == [1, 0]
        with pytest.raises(LedgerError, match=r"--fewer.*LC7230"):
            delete_back(session, hard, decision("reset hard"))
        delete_back(session, hard, decision("reset hard"), fewer=True)
    marked.settle()
    marked.check(EVERYTHING)


@pytest.mark.heavy
def test_a_hard_reset_begins_where_the_declaration_states(marked: World) -> None:
    found = delete(marked, None, 61)
    assert found.start == "earliest"
    marked.check(Counter())
    marked.settle()
    marked.check(EVERYTHING)
    check_verified(marked)


def test_what_cannot_be_read_again_is_named_and_given_up(marked: World) -> None:
    topic = str(marked.landing.topics)
    admin = AdminClient(dict(marked.kafka))
    admin.delete_records([TopicPartition(topic, 1, 12)])[TopicPartition(topic, 1)].result(PATIENCE)
    found = delete(marked, {(topic, 1): 10}, 20)
    assert short(marked, found.removed) == "[1] [10, 12)"
    assert any("CANNOT be read again" in line for line in found.lines())
    marked.settle()
    marked.check(EVERYTHING - Counter([110, 111]))
    check_verified(marked)


@pytest.mark.heavy
def test_no_row_goes_before_all_tables_were_checked(marked: World) -> None:
    topic = str(marked.landing.topics)
    with marked.session() as session:
        found = delete_preview(session, {(topic, 0): 20})
        assert len(found.tables) == 2
        dead = session.tables.load("shop.dead")
        dead.append(dead.scan().to_arrow())
        coverage = Coverage.union(t.replaced.ranges for t in found.tables)
        with pytest.raises(LedgerError, match=r"shop\.dead: 2 rows .*, the ledger has 1.*LC7229"):
            replace(session, coverage, commit_id=session.new_id(), previews=found.tables)
    marked.check(EVERYTHING)


@pytest.mark.heavy
def test_tables_that_were_rolled_back_are_brought_in_order_first(marked: World) -> None:
    topic = str(marked.landing.topics)
    with marked.session() as session:
        dead = session.tables.load("shop.dead")
        first = dead.metadata.current_snapshot().parent_snapshot_id  # type: ignore[union-attr]
        assert first is not None
        dead.manage_snapshots().set_current_snapshot(first).commit()
    delete(marked, {(topic, 0): 20}, 10)
    marked.check(Counter([*range(20), *range(100, 130)]))
    marked.settle()
    marked.check(EVERYTHING)
    assert len(marked.rows("shop.dead")) == 1
    check_verified(marked)


@pytest.mark.heavy
def test_a_hard_reset_that_dies_between_its_two_commits_loses_nothing_and_is_done_by_the_same_command(
    marked: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are deleted, and the ledgers do not begin anew yet: a run reads all of it again."""

    def killed(*_: object, **__: object) -> None:
        raise Killed

    for landed_between in (False, True):
        with monkeypatch.context() as patch, marked.session() as session:
            patch.setattr(delete_back_module, "ledger_init", killed)
            found = delete_preview(session, None)
            with pytest.raises(Killed):
                delete_back(session, found, decision("reset hard"))
        marked.check(Counter())
        check_verified(marked)
        with marked.session() as session:
            assert short(marked, preview(session).plan.coverage) == "[0] [0, 31), [1] [0, 30)"
            state = ledger_state(session, "shop.rows")
            assert state is not None
            assert state.decisions[-1].command == "reset hard"
            assert "starts over at earliest after that" in state.decisions[-1].what
        if landed_between:
            marked.settle()
            marked.check(EVERYTHING)
        found = delete(marked, None, 61 if landed_between else 0)
        assert found.start == "earliest"
        marked.check(Counter())
        marked.settle()
        marked.check(EVERYTHING)
        check_verified(marked)


@pytest.mark.campaign
def test_a_hard_reset_that_dies_anywhere_is_continued(marked: World) -> None:
    for step in range(1, 9):
        with deaths(step, "after") as counter:
            try:
                with marked.session() as session:
                    delete_back(session, delete_preview(session, None), decision("reset hard"))
            except Killed:
                pass
            else:
                assert len(counter.steps) < step
        with marked.session() as session:
            delete_back(session, delete_preview(session, None), decision("reset hard"))
        marked.check(Counter())
        marked.settle()
        marked.check(EVERYTHING)
        check_verified(marked)


@pytest.mark.heavy
def test_a_table_that_does_not_report_which_records_its_rows_are_of_is_refused(
    make_world: Make, produce: Produce
) -> None:
    behind = make_world(metadata_columns=False)
    for p in range(2):
        produce(behind.landing.topics, records(100 * p, 10), partition=p)
    behind.settle()
    with behind.session() as session, pytest.raises(LedgerError, match="LC3023"):
        delete_preview(session, None)
    behind.check(Counter([*range(10), *range(100, 110)]))
