# SPDX-License-Identifier: Apache-2.0
"""What the log says of attempts, and what names say of files."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import fastavro
import pytest
from pyarrow.fs import FileInfo

from airflow_provider_lakecommit.core.identity import attempt_id
from airflow_provider_lakecommit.core.locations import attempt_of, file_mark, file_name, mark_of
from airflow_provider_lakecommit.core.log import Entry
from airflow_provider_lakecommit.operations.maintenance.garbage import Why, commit_of, reports_of
from airflow_provider_lakecommit.operations.maintenance.sweep import _parent
from tests.support.story import ORDERS, P0, VOID_EPOCH, Story, ledger, table_uuid

TABLE = table_uuid(ORDERS)


def reported(**of_report: object) -> tuple[list[Entry], UUID]:
    story = Story()
    story.opens("a", [[(P0, 0, 10)]])
    attempt = story.reports("a", [(P0, 0, 10)], **of_report)
    return story.entries, attempt


def test_what_can_still_be_published_is_no_garbage() -> None:
    entries, attempt = reported()
    assert reports_of(entries, ledger()) == {attempt: None}
    assert reports_of(entries[:-1], ledger()) == {attempt: None}, "its files without its report tell nothing"


@pytest.mark.parametrize("covered", [[(P0, 0, 10)], [(P0, 9, 30)], [(P0, 0, 1)]])
def test_what_overlaps_the_table_would_be_refused(covered: list[tuple[object, int, int]]) -> None:
    entries, attempt = reported()
    assert reports_of(entries, ledger(covered=covered)) == {attempt: Why.LANDED}  # type: ignore[arg-type]
    assert reports_of(entries, ledger(others=covered)) == {attempt: Why.LANDED}  # type: ignore[arg-type]


def test_another_epoch_would_be_refused() -> None:
    entries, attempt = reported()
    assert reports_of(entries, ledger(epoch=VOID_EPOCH)) == {attempt: Why.VOID}


def test_a_slice_that_was_not_done_has_nothing_to_publish() -> None:
    entries, attempt = reported(failed="a damaged batch")
    assert reports_of(entries, ledger()) == {attempt: Why.NOT_DONE}


@pytest.mark.parametrize("forged_first", [True, False])
def test_a_second_report_makes_no_garbage_of_an_attempt(forged_first: bool) -> None:
    (*_, good), attempt = reported()
    (*_, forged), _ = reported(failed="forged")
    both = [forged, good] if forged_first else [good, forged]
    assert reports_of(both, ledger()) == {attempt: None}


def test_only_what_replaces_front_of_an_offset_counts() -> None:
    entries, attempt = reported()
    assert reports_of(entries, ledger(), before=entries[1].offset) == {}
    assert reports_of(entries, ledger(), before=entries[-1].offset + 1) == {attempt: None}


def test_names_of_data_files_report_table_landing_and_stream() -> None:
    attempt, mark = uuid4(), file_mark(TABLE, "orders", "live")
    path = f"s3://lake/data/0101-{file_name(attempt, mark, 123456)}"
    assert (attempt_of(path), mark_of(path)) == (attempt, mark)
    others = [(uuid4(), "orders", "live"), (TABLE, "order", "slive"), (TABLE, "orders", "fill")]
    assert mark not in [file_mark(*other) for other in others]
    assert mark_of(f"{attempt}-00000.parquet") is None
    assert mark_of(f"{attempt}-{'9' * 24}.parquet") is None


def test_names_of_manifests_report_the_table() -> None:
    commit = attempt_id(TABLE, uuid4())
    assert commit_of(f"{commit}-m0.avro", TABLE) == (commit, False)
    assert commit_of(f"snap-17-0-{commit}.avro", TABLE) == (commit, True)
    assert commit_of(f"{commit}-m0.avro", uuid4()) is None
    assert commit_of(f"{uuid4()}-m0.avro", TABLE) is None
    for name in (
        f"{commit}.avro",
        f"{commit}-m.avro",
        f"x{commit}-m0.avro",
        f"{'-' * 36}-m0.avro",
        "00001.metadata.json",
    ):
        assert commit_of(name, TABLE) is None


def parent_in(content: bytes) -> int | None:
    store: Any = SimpleNamespace(read=lambda path: content)
    return _parent(store, FileInfo("snap-1-1-a.avro"))


def manifest_list(**facts: str) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, {"type": "record", "name": "manifest_file", "fields": []}, [], metadata=facts)
    return out.getvalue()


def test_a_manifest_list_reports_its_parent() -> None:
    assert parent_in(manifest_list(**{"parent-snapshot-id": "17"})) == 17
    assert parent_in(manifest_list(**{"parent-snapshot-id": "null"})) is None
    assert parent_in(manifest_list()) is None
    assert parent_in(b"cut") == -1
