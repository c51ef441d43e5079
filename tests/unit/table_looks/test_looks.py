# SPDX-License-Identifier: Apache-2.0
"""Tables that are looked at by a process of its own: what it tells, how much at most, and what it is hurt by."""

from __future__ import annotations

from base64 import b64decode
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from airflow_provider_lakecommit.iceberg.schemas import DEAD_LETTER_SCHEMA
from airflow_provider_lakecommit.parquet.arrow_types import arrow_schema
from airflow_provider_lakecommit.table_looks.process import ask
from airflow_provider_lakecommit.table_looks.question import (
    MOST_KEY,
    MOST_VALUE,
    Part,
    Sample,
    TableAnswer,
    TableQuestion,
    part_of,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DEAD = "shop.dead"
HOSTILE = ("<script>alert(1)</script>", "\u202etxt.exe", "\x00\x07", "x" * 4_000)


class DeletesWriter(ManifestWriterV2):
    """A manifest of deletes, which pyiceberg reads and does not write."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class Shop:
    """A catalog in a folder, with a dead-letter table."""

    def __init__(self, path: Path) -> None:
        self.properties = {"type": "sql", "uri": f"sqlite:///{path}/catalog.db", "warehouse": f"file://{path}"}
        self.catalog: Catalog = load_catalog("lake", **self.properties)
        self.catalog.create_namespace("shop")
        self.catalog.create_table(DEAD, DEAD_LETTER_SCHEMA, properties={"format-version": "2"})
        self._offset = 0

    def rejects(self, *values: bytes | None, landing: str = "orders", times: int = 1, **more: Any) -> None:
        """One file of records that were rejected, so many times each."""
        rows = []
        for value in values:
            self._offset += 1
            row = {"topic": "orders", "partition": 0, "offset": self._offset, "timestamp": NOON, "value": value}
            row |= {"key": b"k", "headers": None, "kind": "wrong_value", "column": "id", "reason": "no number"}
            rows.append({**row, "landing": landing, **more})
        made = pa.Table.from_pylist(rows, schema=arrow_schema(DEAD_LETTER_SCHEMA))
        self.catalog.load_table(DEAD).append(pa.concat_tables([made] * times))

    def deletes(self, content: DataFileContent, path: Path, rows: pa.Table) -> None:
        """What engines write that delete rows in place: a file of deletes, by positions or by values."""
        pq.write_table(rows, path)
        table = self.catalog.load_table(DEAD)
        head, number = table.current_snapshot(), table.last_sequence_number + 1
        assert head is not None
        place = {"content": content, "file_path": f"file://{path}", "file_format": FileFormat.PARQUET}
        of_file = {"partition": Record(), "record_count": len(rows), "file_size_in_bytes": path.stat().st_size}
        file = DataFile.from_args(**place, **of_file, equality_ids=[3])
        with DeletesWriter(
            table.spec(), table.schema(), table.io.new_output(f"file://{path}.avro"), 7, "null"
        ) as writer:
            writer.add(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=7, data_file=file))
        manifests = [*head.manifests(table.io), writer.to_manifest_file()]
        listed = f"file://{path}.list.avro"
        with write_manifest_list(2, table.io.new_output(listed), 7, head.snapshot_id, number, "null") as out:
            out.add_manifests(manifests)
        summary = Summary(Operation.DELETE)
        made = {"snapshot_id": 7, "parent_snapshot_id": head.snapshot_id, "sequence_number": number, "schema_id": 0}
        added = AddSnapshotUpdate(snapshot=Snapshot(**made, manifest_list=listed, summary=summary))
        to_head = SetSnapshotRefUpdate.model_validate({"ref-name": "main", "type": "branch", "snapshot-id": 7})
        self.catalog.commit_table(table, (), (added, to_head))

    def ask(self, *questions: TableQuestion, **more: Any) -> list[TableAnswer]:
        return ask(questions, {"lake": self.properties, **more.pop("catalogs", {})}, **more)

    def samples(self, landing: str = "orders") -> tuple[Sample, ...]:
        (answer,) = self.ask(TableQuestion(connection="lake", table=DEAD, landing=landing))
        assert answer.trouble == ""
        return answer.samples


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_of_each_kind_the_newest_few_are_told_and_none_of_another_landing(shop: Shop) -> None:
    shop.rejects(*[b"old"] * 50)
    shop.rejects(b"other", landing="clicks")
    shop.rejects(b"{", kind="not_json", column=None, reason="the record ends early")
    shop.rejects(*[b"%d" % n for n in range(200)])
    found = shop.samples()
    assert Counter(s.kind for s in found) == {"wrong_value id": 3, "not_json": 1}
    assert [s.value and s.value.text for s in found if s.kind == "wrong_value id"] == ["199", "198", "197"]
    first = found[0]
    assert (first.partition, first.offset, first.at) == ("orders[0]", 252, "2026-01-01T12:00:00+00:00")
    assert [s.value and s.value.text for s in shop.samples("clicks")] == ["other"]
    assert shop.samples("nobody") == ()


def test_what_records_hold_is_told_as_it_is_and_cut(shop: Shop) -> None:
    shop.rejects(*(text.encode() for text in HOSTILE))
    shop.rejects(
        b"\xff\xfe" * 3000, None, kind="not_json", column="<b>", headers=[{"key": "h\x00" * 400, "value": b"s"}]
    )
    odd, texts = shop.samples()[:2], shop.samples()[2:]
    none, binary = odd
    assert none.value is None
    assert (none.kind, len(none.headers), len(none.headers[0])) == ("not_json <b>", 1, 500)
    assert binary.value is not None
    assert (binary.value.text, binary.value.size) == (None, 6000)
    assert b64decode(binary.value.base64 or "") == (b"\xff\xfe" * 3000)[:MOST_VALUE]
    assert [s.value.text for s in texts if s.value] == ["x" * MOST_VALUE, "\x00\x07", "\u202etxt.exe"]


def test_a_text_is_cut_between_two_letters() -> None:
    assert part_of("ä€😀".encode(), 8) == Part(size=9, text="ä€")
    assert part_of(b"", MOST_KEY) == Part(size=0, text="")
    assert part_of(b"abc\xff", 3) == Part(size=4, text="abc")
    cut = part_of(b"\xe2\x82", 5)
    assert cut is not None
    assert cut.text is None, "what ends within a letter is no text"


def test_rows_that_were_deleted_are_not_told(shop: Shop) -> None:
    shop.rejects(b"to be forgotten", b"stays")
    shop.catalog.load_table(DEAD).delete("offset = 1")
    assert [s.value and s.value.text for s in shop.samples()] == ["stays"]


def test_rows_that_an_engine_deleted_in_place_are_not_told_or_nothing_is(shop: Shop, tmp_path: Path) -> None:
    shop.rejects(b"to be forgotten", b"stays")
    (file,) = shop.catalog.load_table(DEAD).inspect.files().column("file_path").to_pylist()
    ids = {"file_path": b"2147483546", "pos": b"2147483545"}
    fields = [
        pa.field(n, t, False, {b"PARQUET:field_id": ids[n]})
        for n, t in (("file_path", pa.string()), ("pos", pa.int64()))
    ]
    positions = pa.table([[file], [0]], schema=pa.schema(fields))
    shop.deletes(DataFileContent.POSITION_DELETES, tmp_path / "positions.parquet", positions)
    assert [s.value and s.value.text for s in shop.samples()] == ["stays"]


def test_where_deletes_cannot_be_applied_there_are_no_samples(shop: Shop, tmp_path: Path) -> None:
    shop.rejects(b"to be forgotten", b"stays")
    shop.deletes(DataFileContent.EQUALITY_DELETES, tmp_path / "values.parquet", pa.table({"offset": [1]}))
    (answer,) = shop.ask(TableQuestion(connection="lake", table=DEAD, landing="orders"))
    assert answer.samples == ()
    assert "compact the table" in answer.trouble


def test_small_files_are_counted_in_one_look_with_what_else_is_asked(shop: Shop) -> None:
    plain = Schema(NestedField(1, "id", LongType()))
    shop.catalog.create_table("shop.orders", plain, properties={"write.target-file-size-bytes": "4000000"})
    for _ in range(3):
        shop.catalog.load_table("shop.orders").append(pa.table({"id": [1]}))
    shop.rejects(b"x")
    files, dead, missing, nobodys, wrong = shop.ask(
        TableQuestion(connection="lake", table="shop.orders"),
        TableQuestion(connection="lake", table=DEAD, landing="orders"),
        TableQuestion(connection="lake", table="shop.gone"),
        TableQuestion(connection="lake", table="shop.orders", branch="audit"),
        TableQuestion(connection="lake", table="shop.orders", landing="orders"),
    )
    assert files.files is not None
    assert (files.files.files, files.files.small, files.files.limit) == (3, 3, 1_000_000)
    assert len(dead.samples) == 1
    assert "there is no table shop.gone" in missing.trouble
    assert nobodys == TableAnswer()
    assert "is no dead-letter table" in wrong.trouble


def test_a_catalog_that_is_away_is_asked_once_and_nobody_learns_its_secret(shop: Shop) -> None:
    away = {"type": "rest", "uri": "http://127.0.0.1:1", "credential": "id:a-secret-word"}
    questions = [TableQuestion(connection="away", table=f"t.t{n}") for n in range(5)]
    *answers, own = shop.ask(
        *questions, TableQuestion(connection="lake", table=DEAD, landing="o"), catalogs={"away": away}
    )
    assert len({a.trouble for a in answers}) == 1
    assert "127.0.0.1" in answers[0].trouble
    assert "a-secret-word" not in answers[0].trouble
    assert own.trouble == ""


def test_values_that_are_gigabytes_when_they_are_unpacked_end_that_process_alone(shop: Shop) -> None:
    shop.rejects(*[b"x" * (8 << 20)] * 4, times=50)
    (answer,) = shop.ask(TableQuestion(connection="lake", table=DEAD, landing="orders"))
    assert answer.samples == ()
    assert answer.trouble != ""


def test_what_takes_too_long_is_left_and_said(shop: Shop) -> None:
    (answer,) = shop.ask(TableQuestion(connection="lake", table=DEAD, landing="orders"), seconds=0.01)
    assert answer == TableAnswer(trouble="not looked at within 0 s")
