# SPDX-License-Identifier: Apache-2.0
"""`reset assert`: the metadata is made to forget what a table holds, a user says it, and landing goes on: nothing is
lost or doubled against what was said.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from pyiceberg.expressions import GreaterThanOrEqual
from pyiceberg.table import Table

from airflow_provider_lakecommit.cli.reset import reset_assert
from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.core.model import LIVE
from airflow_provider_lakecommit.cycle.session.tables import MARKED
from airflow_provider_lakecommit.exceptions import LedgerError, SourceError, SpecError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.ledger.ledger import Condition, LedgerState, read_ledger
from airflow_provider_lakecommit.operations.decisions.assertion import (
    Assertion,
    assert_tables,
    from_log,
    from_offsets,
    from_snapshot,
)
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from airflow_provider_lakecommit.status.history import read_history
from airflow_provider_lakecommit.status.table_history import Severity
from airflow_provider_lakecommit.status.verify import check_landing
from tests.support.world import World, records

pytestmark = pytest.mark.integration

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]
ROWS = "shop.rows"


def table(world: World, name: str = ROWS) -> Table:
    return Tables(world.catalog).load(name)


def state(world: World, name: str = ROWS) -> LedgerState:
    return read_ledger(table(world, name).metadata)


def foreign(world: World, first: int) -> int:
    """Another engine appends one row; returns its snapshot."""
    found = table(world)
    rows = found.scan(limit=1).to_arrow()
    found.append(rows.set_column(0, rows.schema.field(0), [[first]]))
    snapshot = table(world).current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def cut(world: World) -> int:
    """Snapshots between the ledger and the head are expired; returns the ledger's, which the tag still holds."""
    kept = state(world).snapshot_id
    assert kept is not None
    expired = foreign(world, -1)
    foreign(world, -2)
    table(world).maintenance.expire_snapshots().by_id(expired).commit()
    assert state(world).condition is Condition.CUT
    return kept


def remade(world: World) -> None:
    """The table is dropped and another one is there, with the same rows and no ledger: a migration."""
    old = table(world)
    rows = old.scan().to_arrow()
    schema, spec = old.schema(), old.spec()
    catalog = Tables(world.catalog).catalog
    catalog.drop_table(ROWS)
    catalog.create_table(ROWS, schema=schema, partition_spec=spec, properties={MARKED: "true"}).append(rows)


def refused(world: World, snapshot_id: int) -> None:
    """The rows of a snapshot that is not on the branch are not known to be there."""
    with world.session() as session, pytest.raises(LedgerError, match="LC7003"):
        from_snapshot(session, snapshot_id)


def ends(world: World) -> dict[tuple[str, int], int]:
    """All that the source has."""
    with world.session() as session:
        marks = session.source.watermarks().partitions
    return {(p.topic, p.partition): mark.stable for p, mark in marks.items()}


def run_assertion(world: World, lookup: Callable[..., Assertion], *arguments: object) -> Assertion:
    with world.session() as session:
        assertion = lookup(session, *arguments)
        assert_tables(session, assertion)
    return assertion


def goes_on(world: World, produce: Produce, expected: Counter[int]) -> None:
    """More records come, and all is landed as it was asserted; the tables add up."""
    produce(world.landing.topics, records(1000, 30))
    world.settle()
    world.check(expected + Counter(range(1000, 1030)))
    histories = [
        read_history(Tables(world.catalog), t, "main", progress=world.lines.append) for t in world.landing.tables
    ]
    wrong = [f for f in check_landing(world.landing, histories) if f.level is Severity.WRONG]
    assert wrong == []


def test_a_ledger_that_was_cut_off_is_taken_from_its_snapshot(make_world: Make, produce: Produce) -> None:
    world = make_world(dead_letter_table=None)
    produce(world.landing.topics, records(0, 60))
    world.run()
    kept = cut(world)
    with pytest.raises(LedgerError, match=rf"cut.*`lakecommit reset assert SPEC --snapshot {kept}`.*LC3008"):
        world.open("refused")
    before = state(world)
    with world.session() as session:
        asserted = from_snapshot(session, kept)
    assert state(world) == before, "looking up writes nothing"
    (shown,) = asserted.tables
    assert (len(shown.section.covered), len(shown.again), len(shown.never_read)) == (60, 0, 0)
    run_assertion(world, from_snapshot, kept)
    assert state(world).condition is Condition.PRESENT
    summary = table(world).current_snapshot().summary  # type: ignore[union-attr]
    assert summary is not None
    assert summary["lakecommit.attested"] == f"snapshot {kept}"
    goes_on(world, produce, Counter([*range(60), -1, -2]))


@pytest.mark.heavy
def test_other_landings_of_the_table_come_back_with_the_snapshot(make_world: Make, produce: Produce) -> None:
    world = make_world(partitions=1, dead_letter_table=None)
    other = make_world(partitions=1, dead_letter_table=None, name="other")
    produce(world.landing.topics, records(0, 20))
    produce(other.landing.topics, records(100, 20))
    other.run()
    world.run()
    epoch = state(other).section("other", LIVE).epoch  # type: ignore[union-attr]
    run_assertion(world, from_snapshot, cut(world))
    section = state(other).section("other", LIVE)
    assert section is not None
    assert section.epoch != epoch, "what was pending of it cannot be committed"
    produce(other.landing.topics, records(120, 5))
    other.settle()
    goes_on(world, produce, Counter([*range(20), *range(100, 125), -1, -2]))


@pytest.mark.heavy
def test_other_landings_keep_their_sections_when_one_sets_its_ledger(make_world: Make, produce: Produce) -> None:
    world = make_world(partitions=1, dead_letter_table=None)
    other = make_world(partitions=1, dead_letter_table=None, name="other")
    produce(world.landing.topics, records(0, 20))
    produce(other.landing.topics, records(100, 20))
    other.run()
    world.run()
    cut(world)
    with world.session() as session:
        ledger_init(session, {(str(world.landing.topics), 0): 20})
    produce(other.landing.topics, records(120, 5))
    other.settle()
    goes_on(world, produce, Counter([*range(20), *range(100, 125), -1, -2]))


@pytest.mark.heavy
def test_what_was_published_in_a_table_before_it_was_dropped_is_not_in_its_successor(
    make_world: Make, produce: Produce
) -> None:
    """Landed, dropped, landed anew from a later offset, and migrated then: only the second life counts."""
    world = make_world(partitions=1, dead_letter_table=None)
    topic = str(world.landing.topics)
    produce(topic, records(0, 70))
    world.run()
    Tables(world.catalog).catalog.drop_table(ROWS)
    with world.session() as session:
        ledger_init(session, "earliest")
    produce(topic, records(70, 30))
    opened = world.open("half")
    world.write(opened, only=lambda index: index == 0)
    world.close("half", opened)
    landed = Counter(row["id"] for row in world.rows())
    assert landed == Counter(range(40))
    remade(world)
    asserted = run_assertion(world, from_log)
    assert str(asserted.tables[0].section.covered) == f"{topic}[0] [0, 40)"
    goes_on(world, produce, Counter(range(100)))


@pytest.mark.heavy
def test_a_table_that_was_migrated_is_asserted_from_the_log(make_world: Make, produce: Produce) -> None:
    world = make_world(dead_letter_max_ratio=1.0)
    produce(world.landing.topics, [*records(0, 60), ("x", "no json")])
    world.settle()
    produce(world.landing.topics, records(60, 40))
    world.settle()
    remade(world)
    with pytest.raises(LedgerError, match=r"`lakecommit reset assert SPEC --from-log`.*LC6015"):
        world.open("refused")
    asserted = run_assertion(world, from_log)
    assert [t.table for t in asserted.tables] == [ROWS], "the dead letters have their ledger"
    assert not asserted.tables[0].never_read
    goes_on(world, produce, Counter(range(100)))
    assert len(world.rows("shop.dead")) == 1


@pytest.mark.heavy
def test_a_log_that_was_cut_cannot_vouch_for_what_it_forgot(
    make_world: Make, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(partitions=2, dead_letter_table=None)
    produce(world.landing.topics, records(0, 20), partition=0)
    world.run()
    produce(world.landing.topics, records(20, 20), partition=1)
    world.run()
    remade(world)
    with world.session() as session:
        read = session.control.read
        log = read(session.control.partition_for(session.landing.group_id), None)
        late = [r for r in log.records if r.offset > log.records[len(log.records) // 2].offset]
        monkeypatch.setattr(
            session.control,
            "read",
            lambda p, start=None, **k: replace(read(p, start, **k), records=tuple(late), begin=9),
        )
        with pytest.raises(LedgerError, match=r"\[0\].*--at.*LC7006"):
            from_log(session)
    topic = str(world.landing.topics)
    with world.session() as session, pytest.raises(LedgerError, match=rf"{topic}\[1\]: name them too.*LC7008"):
        from_offsets(session, {(topic, 0): 20})
    run_assertion(world, from_offsets, {(topic, 0): 20, (topic, 1): 20})
    goes_on(world, produce, Counter(range(40)))


@pytest.mark.heavy
def test_rows_that_a_user_deleted_are_read_again_from_where_a_user_states(make_world: Make, produce: Produce) -> None:
    world = make_world(partitions=1, dead_letter_table=None)
    topic = str(world.landing.topics)
    produce(topic, records(0, 60))
    world.run()
    table(world).delete(GreaterThanOrEqual("id", 25))
    with world.session() as session, pytest.raises(LedgerError, match=rf"--table {ROWS}.*LC7010"):
        from_offsets(session, {(topic, 0): 25})
    asserted = run_assertion(world, from_offsets, {(topic, 0): 25}, [ROWS])
    assert str(asserted.tables[0].again) == f"{topic}[0] [25, 60)"
    goes_on(world, produce, Counter(range(60)))


@pytest.mark.heavy
def test_a_rollback_whose_rows_are_there_all_the_same_is_not_read_again(make_world: Make, produce: Produce) -> None:
    """Another engine rewrote the table on an older snapshot: the tag is off, the rows are there."""
    world = make_world(dead_letter_table=None)
    produce(world.landing.topics, records(0, 30))
    world.run()
    first = state(world).snapshot_id
    produce(world.landing.topics, records(30, 30))
    world.run()
    found, newest = table(world), state(world).snapshot_id
    rows = found.scan().to_arrow()
    assert first is not None
    assert newest is not None
    found.manage_snapshots().rollback_to_snapshot(first).commit()
    table(world).overwrite(rows)
    assert state(world).condition is Condition.ROLLED_BACK
    refused(world, newest)
    run_assertion(world, from_offsets, ends(world), [ROWS])
    assert state(world).condition is Condition.PRESENT
    goes_on(world, produce, Counter(range(60)))


def picked(world: World, snapshot_id: int) -> None:
    """A user has a snapshot's files on the head, as Iceberg picks what is no child of it."""
    found = table(world)
    snapshot = found.snapshot_by_id(snapshot_id)
    assert snapshot is not None
    manifests = [m for m in snapshot.manifests(found.io) if m.added_snapshot_id == snapshot_id]
    source = {"source-snapshot-id": str(snapshot_id)}
    with found.transaction() as change, change.update_snapshot(snapshot_properties=source).fast_append() as append:
        for entry in (e for m in manifests for e in m.fetch_manifest_entry(found.io)):
            append.append_data_file(entry.data_file)


@pytest.mark.heavy
def test_rows_that_were_cherry_picked_from_above_a_bad_snapshot_are_not_read_again(
    make_world: Make, produce: Produce
) -> None:
    """The bad one is taken out, and what a landing had put on top of it is kept: its ledger does not come along."""
    world = make_world(dead_letter_table=None)
    produce(world.landing.topics, records(0, 30))
    world.run()
    good = state(world).snapshot_id
    foreign(world, -1)
    produce(world.landing.topics, records(30, 30))
    world.run()
    newest, picked_to = state(world).snapshot_id, ends(world)
    assert good is not None
    assert newest is not None
    table(world).manage_snapshots().rollback_to_snapshot(good).commit()
    picked(world, newest)
    assert state(world).condition is Condition.PICKED
    history = read_history(Tables(world.catalog), ROWS, "main", files=True, progress=str)
    assert [f.level for f in check_landing(world.landing, [history])].count(Severity.WRONG) == 1
    produce(world.landing.topics, records(60, 5))
    with pytest.raises(LedgerError, match=r"is picked.*reset assert SPEC --at .*LC3008"):
        world.settle()
    refused(world, newest)
    run_assertion(world, from_offsets, picked_to, [ROWS])
    assert state(world).condition is Condition.PRESENT
    goes_on(world, produce, Counter(range(65)))


@pytest.mark.heavy
def test_a_ledger_that_changed_since_the_lookup_is_not_overwritten(make_world: Make, produce: Produce) -> None:
    world = make_world(partitions=1, dead_letter_table=None)
    topic = str(world.landing.topics)
    produce(topic, records(0, 20))
    world.run()
    with world.session() as session:
        asserted = from_offsets(session, {(topic, 0): 10}, [ROWS])
        produce(topic, records(20, 20))
        world.run()
        with pytest.raises(LedgerError, match="LC3013"):
            assert_tables(session, asserted)
    goes_on(world, produce, Counter(range(40)))


def test_statements_that_cannot_be_true_are_refused(make_world: Make, produce: Produce) -> None:
    world = make_world(partitions=1, dead_letter_table=None)
    topic = str(world.landing.topics)
    produce(topic, records(0, 20))
    world.run()
    landed = state(world).snapshot_id
    odd = foreign(world, -1)
    elsewhere = make_world(partitions=1, dead_letter_table=None)
    with world.session() as session:
        with pytest.raises(LedgerError, match=rf"has a snapshot 5; .*{landed}.*LC7001"):
            from_snapshot(session, 5)
        with pytest.raises(LedgerError, match=rf"snapshot {odd} .*{landed}.*LC7002"):
            from_snapshot(session, odd)
        with pytest.raises(SourceError, match=r"\[0\] \[0, 21\):.*20.*LC7018"):
            from_offsets(session, {(topic, 0): 21}, [ROWS])
        with pytest.raises(SourceError, match=r"\[7\]:.*LC7007"):
            from_offsets(session, {(topic, 7): 1}, [ROWS])
    assert landed is not None
    with elsewhere.session() as session, pytest.raises(SourceError, match="LC7017"):
        from_snapshot(session, landed)
    never = make_world(partitions=1, dead_letter_table=None, name="never", table="shop.never")
    with never.session() as session:
        ledger_init(session, "latest")
        with pytest.raises(LedgerError, match="LC7005"):
            from_log(session, ["shop.never"])


def test_the_command_shows_first_and_writes_only_with_yes(
    make_world: Make, produce: Produce, capsys: pytest.CaptureFixture[str]
) -> None:
    world = make_world(partitions=1, dead_letter_table=None)
    produce(world.landing.topics, records(0, 20))
    world.run()
    kept = cut(world)

    def command(at: str | None, *, yes: bool, as_json: bool = False, **more: object) -> str:
        stated = {"snapshot": kept if at is None else None, "from_log": False, "at": at, "table": None, **more}
        options = Namespace(**stated, yes=yes, reason="", give_up_reported=False, others=None)
        with world.session() as session:
            code = reset_assert(session, options, Output(as_json=as_json))
        assert code == (Exit.DONE if yes else Exit.UNCONFIRMED)
        return capsys.readouterr().out

    topic = world.landing.topics
    shown = command(f"{topic}:0=5", yes=False)
    assert "ledger cut" in shown
    assert f"{topic}[0]: landed [0, 5), continues at 5" in shown
    assert f"read AGAIN, though the ledger or the control log has it: {topic}[0] [5, 20): duplicated" in shown
    assert state(world).condition is Condition.CUT
    answer = json.loads(command(None, yes=True, as_json=True))
    assert (answer["written"], answer["attested"]) == (True, {ROWS: {f"{topic}[0]": 20}})
    with pytest.raises(SpecError, match=r"--table shop\.none.*shop\.rows.*LC8026"):
        command(None, yes=False, snapshot=None, from_log=True, table=["shop.none"])
    goes_on(world, produce, Counter([*range(20), -1, -2]))


@pytest.mark.heavy
def test_rows_of_a_landing_that_a_rollback_took_out_with_its_first_snapshot_are_not_asserted_by_the_log(
    make_world: Make, produce: Produce
) -> None:
    """Another landing of the table has rows enough for both."""
    first = make_world(partitions=1, dead_letter_table=None, name="first")
    world = make_world(partitions=1, dead_letter_table=None)
    produce(first.landing.topics, records(100, 50))
    first.run()
    head = table(world).metadata.current_snapshot_id
    produce(world.landing.topics, records(0, 20))
    world.run()
    assert head is not None
    table(world).manage_snapshots().set_current_snapshot(head).commit()
    produce(first.landing.topics, records(150, 5))
    first.settle()
    with pytest.raises(LedgerError, match=r"`lakecommit reset offsets SPEC --from.*LC6014"):
        world.open("refused")
    with world.session() as session:
        with pytest.raises(LedgerError, match=r"\[0, 20\) was published.*branch main.*LC7015"):
            from_log(session)
        ledger_init(session, "earliest")
    goes_on(world, produce, Counter([*range(20), *range(100, 155)]))
