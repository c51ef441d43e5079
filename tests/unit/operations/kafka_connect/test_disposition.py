# SPDX-License-Identifier: Apache-2.0
"""What may be committed in a connector's place, and what nobody can know any more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID, uuid4

import pytest

from airflow_provider_lakecommit.operations.kafka_connect.disposition import (
    AnnouncedFiles,
    ControlOffset,
    Disposition,
    EvaluatedFile,
    File,
    GroupLog,
    History,
    KnownSnapshot,
    ReportedSnapshot,
    blocking_files,
    chunks,
    evaluate_files,
    floor_after,
)

TABLE, UUID_OF_TABLE = "shop.orders", uuid4()
CYCLE = uuid4()


def file(path: str = "a", rows: int = 5, spec_id: int = 0, *, deletes: bool = False) -> File:
    return File(path=path, rows=rows, size=100, spec_id=spec_id, deletes=deletes)


def announced(
    offset: int,
    *files: File,
    partition: int = 0,
    table_uuid: UUID | None = UUID_OF_TABLE,
    cycle: UUID = CYCLE,
    table: str = TABLE,
    read_again: bool = False,
) -> AnnouncedFiles:
    return AnnouncedFiles(
        position=ControlOffset(partition, offset),
        order=offset,
        cycle=cycle,
        table=table,
        table_uuid=table_uuid,
        files=files or (file(),),
        read_again=read_again,
    )


def made(snapshot_id: int, offset: int, partition: int = 0) -> ReportedSnapshot:
    return ReportedSnapshot(
        position=ControlOffset(partition, offset), table=TABLE, table_uuid=UUID_OF_TABLE, snapshot_id=snapshot_id
    )


def history(
    numbers: Iterable[int],
    *,
    last: int | None = None,
    floors: Mapping[int, Mapping[int, int]] | None = None,
    version: int = 2,
    spec_id: int = 0,
    first_parent: int | None = None,
) -> History:
    """A table whose snapshots are called by their sequence numbers; the newest floor is that of the branch."""
    there = sorted(numbers)
    floors = floors or {}
    snaps = [
        KnownSnapshot(
            snapshot_id=number,
            sequence=number,
            parent_id=first_parent if number == 1 else number - 1,
            floor=floors.get(number),
        )
        for number in there
    ]
    return History(
        table_uuid=UUID_OF_TABLE,
        format_version=version,
        spec_id=spec_id,
        last_sequence=max(there, default=0) if last is None else last,
        snapshots=tuple(snaps),
        floor=floors[max(floors)] if floors else {},
    )


def only(log: GroupLog, table: History, named: Iterable[str] = ()) -> EvaluatedFile:
    (evaluated,) = evaluate_files(log, TABLE, table, frozenset(named))
    return evaluated


def test_a_file_in_a_manifest_was_committed() -> None:
    assert only(GroupLog(announced=(announced(7),)), history([1]), ["a"]).disposition is Disposition.COMMITTED


def test_a_file_in_no_snapshot_of_a_table_that_forgot_none_waits() -> None:
    for numbers in ([], [1], [1, 2, 3]):
        assert only(GroupLog(announced=(announced(7),)), history(numbers)).disposition is Disposition.WAITING


def test_a_file_that_an_expired_snapshot_may_have_kept_is_unknown() -> None:
    found = only(GroupLog(announced=(announced(7),)), history([4, 5]))
    assert found.disposition is Disposition.UNKNOWN
    assert "before number 4 have expired" in found.reason


def test_a_gap_since_the_older_snapshot_leaves_it_unknown() -> None:
    log = GroupLog(announced=(announced(7),), made=(made(2, 5),))
    assert only(log, history([2, 3, 4])).disposition is Disposition.WAITING
    assert only(log, history([2, 4])).disposition is Disposition.UNKNOWN
    assert only(log, history([2, 3], last=4)).disposition is Disposition.UNKNOWN
    floors = {2: {0: 5}}
    assert only(GroupLog(announced=(announced(7),)), history([2, 3], floors=floors)).disposition is Disposition.WAITING
    assert only(GroupLog(announced=(announced(7),)), history([2, 4], floors=floors)).disposition is Disposition.UNKNOWN


def test_a_snapshot_that_was_reported_before_the_announcement_proves_that_it_is_older() -> None:
    log = GroupLog(announced=(announced(7),), made=(made(4, 6),))
    assert only(log, history([4, 5])).disposition is Disposition.WAITING
    later = GroupLog(announced=(announced(7),), made=(made(4, 8),))
    assert only(later, history([4, 5])).disposition is Disposition.UNKNOWN


@pytest.mark.parametrize(
    ("floor", "disposition"), [(7, Disposition.WAITING), (6, Disposition.WAITING), (8, Disposition.UNKNOWN)]
)
def test_a_control_position_at_or_before_the_announcement_proves_it_too(floor: int, disposition: Disposition) -> None:
    assert only(GroupLog(announced=(announced(7),)), history([4, 5], floors={4: {0: floor}})).disposition is disposition


def test_a_control_position_of_another_partition_proves_nothing() -> None:
    found = only(GroupLog(announced=(announced(7, partition=1),)), history([4, 5], floors={4: {0: 0}}))
    assert found.disposition is Disposition.UNKNOWN


def test_across_partitions_only_the_start_of_the_cycle_gives_an_order() -> None:
    reported = (made(4, 6, partition=1),)
    event = announced(7)
    table = history([4, 5])
    assert only(GroupLog(announced=(event,), made=reported), table).disposition is Disposition.UNKNOWN
    assert (
        only(GroupLog(announced=(event,), made=reported, starts={CYCLE: ControlOffset(1, 9)}), table).disposition
        is Disposition.WAITING
    )
    assert (
        only(GroupLog(announced=(event,), made=reported, starts={CYCLE: ControlOffset(1, 5)}), table).disposition
        is Disposition.UNKNOWN
    )
    assert (
        only(GroupLog(announced=(event,), made=reported, starts={CYCLE: ControlOffset(2, 9)}), table).disposition
        is Disposition.UNKNOWN
    )


def test_a_snapshot_reported_after_it_that_is_missing_leaves_it_unknown_though_the_position_reports_otherwise() -> None:
    # A connector whose position went back once: its own rule would take the file a second time.
    log = GroupLog(announced=(announced(7),), made=(made(99, 12),))
    found = only(log, history([4, 5], floors={4: {0: 3}}))
    assert (found.disposition, found.reason) == (
        Disposition.UNKNOWN,
        "a snapshot that the connector made since it was announced has expired",
    )


def test_snapshots_that_expired_before_the_announcement_do_no_harm() -> None:
    log = GroupLog(announced=(announced(7),), made=(made(1, 2), made(2, 4), made(3, 6)))
    assert only(log, history([3, 4])).disposition is Disposition.WAITING


def test_a_past_before_the_first_number_is_no_complete_past() -> None:
    log = GroupLog(announced=(announced(7),))
    assert only(log, history([1, 2], first_parent=77)).disposition is Disposition.UNKNOWN
    assert only(
        GroupLog(announced=(announced(7),), made=(made(1, 3),)), history([1, 2], first_parent=77)
    ).disposition is (Disposition.WAITING)


def test_format_version_1_reports_nothing() -> None:
    assert only(GroupLog(announced=(announced(7),)), history([], version=1)).disposition is Disposition.UNKNOWN


def test_another_table_of_that_name() -> None:
    found = only(GroupLog(announced=(announced(7, table_uuid=uuid4()),)), history([1]), ["a"])
    assert found.disposition is Disposition.OTHER_TABLE


def test_without_a_table_id_a_snapshot_must_report_that_it_is_the_same_table() -> None:
    log = GroupLog(announced=(announced(7, table_uuid=None),))
    assert only(log, history([1, 2])).disposition is Disposition.UNKNOWN
    assert only(log, history([1, 2], floors={1: {0: 4}})).disposition is Disposition.WAITING


def test_what_is_read_again_is_not_committed() -> None:
    assert (
        only(GroupLog(announced=(announced(7, read_again=True),)), history([1])).disposition is Disposition.READ_AGAIN
    )


@pytest.mark.parametrize("unfit", [file(spec_id=1), file(spec_id=-1), file(deletes=True)])
def test_what_cannot_be_appended_blocks_while_the_connector_would_take_it(unfit: File) -> None:
    log = GroupLog(announced=(announced(7, unfit),))
    found = evaluate_files(log, TABLE, history([1], floors={1: {0: 5}}), frozenset())
    assert [j.disposition for j in blocking_files(found)] == [Disposition.UNFIT]
    passed = evaluate_files(log, TABLE, history([1], floors={1: {0: 8}}), frozenset())
    assert not blocking_files(passed)


def test_what_is_unknown_blocks_only_above_the_floor() -> None:
    log = GroupLog(announced=(announced(3, file("old")), announced(9, file("new"))))
    table = history([4, 5], floors={5: {0: 6}})
    found = evaluate_files(log, TABLE, table, frozenset())
    assert [(j.file.path, j.disposition, j.below_floor) for j in found] == [
        ("old", Disposition.UNKNOWN, True),
        ("new", Disposition.WAITING, False),
    ]
    assert not blocking_files(found)
    blind = evaluate_files(log, TABLE, history([4, 5]), frozenset())
    assert [j.file.path for j in blocking_files(blind)] == ["old", "new"]


def test_each_path_once_none_without_rows_and_only_of_the_table() -> None:
    events = (
        announced(1, file("a"), file("empty", rows=0)),
        announced(2, file("a"), file("b")),
        announced(3, file("c"), table="shop.other"),
    )
    log = GroupLog(announced=events)
    assert [j.file.path for j in evaluate_files(log, TABLE, history([1]), frozenset())] == ["a", "b"]
    assert log.tables == (TABLE, "shop.other")


def test_the_floor_passes_what_was_taken_and_never_goes_back() -> None:
    table = history([1], floors={1: {0: 50, 1: 4}})
    assert floor_after(table, [announced(7), announced(9, partition=1), announced(3, partition=2)]) == {
        0: 50,
        1: 10,
        2: 4,
    }


def test_portions_are_cut_between_events() -> None:
    events = [announced(n, *(file(f"{n}-{i}") for i in range(3))) for n in range(4)]
    evaluated = evaluate_files(GroupLog(announced=tuple(events)), TABLE, history([1]), frozenset())
    assert [len(portion) for portion in chunks(evaluated, 4)] == [6, 6]
    assert [len(portion) for portion in chunks(evaluated, 1)] == [3, 3, 3, 3]
    assert [len(portion) for portion in chunks(evaluated, 100)] == [12]
    assert chunks((), 4) == []
