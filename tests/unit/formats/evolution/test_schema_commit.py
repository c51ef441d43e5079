# SPDX-License-Identifier: Apache-2.0
"""The commit of an evolution against everything that a catalog can do to it: made once, or not at all."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from pyiceberg.exceptions import BadRequestError, CommitFailedException, ForbiddenError
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import LongType, NestedField, StringType, StructType

from airflow_provider_lakecommit.exceptions import CatalogError, CommitRefusedError, CommitUnknownError, LakecommitError
from airflow_provider_lakecommit.formats.evolution.changes import Change
from airflow_provider_lakecommit.formats.evolution.schema_commit import EvolveRequest, evolve_table, evolved_to_text
from airflow_provider_lakecommit.iceberg.ledger.ledger import landing_snapshots
from airflow_provider_lakecommit.iceberg.ledger.summary_extras import EVOLVED
from tests.fakes.catalog import Fault
from tests.fakes.lake import NAME, Lake, section, staged

EXTRA = Change(path=("extra",), kind=StringType())


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path)
    lake.create()
    epoch = lake.join(section()).epoch
    lake.publish(lake.request(staged((0, 0, 5), epoch=epoch)))
    return lake


def missing(metadata: TableMetadata) -> tuple[Change, ...]:
    return () if "extra" in metadata.schema().column_names else (EXTRA,)


def evolve(lake: Lake, reason: str = "because", **policy: int) -> tuple[Change, ...]:
    request = EvolveRequest(table=NAME, landing="orders", lane="live", branch="main", changes=missing, reason=reason)
    return evolve_table(lake.tables, request, lake.clock.retry_policy(**policy))


def evolutions(lake: Lake) -> list[dict[str, object]]:
    return [json.loads(r.extra[EVOLVED]) for r in landing_snapshots(lake.load().metadata) if EVOLVED in r.extra]


def test_schema_ledger_and_reason_come_in_one_snapshot(lake: Lake) -> None:
    before = lake.state()
    assert evolve(lake) == (EXTRA,)
    table = lake.load()
    head = table.current_snapshot()
    assert head is not None
    assert head.schema_id == table.metadata.current_schema_id == 1
    assert table.schema().find_field("extra").doc == "because"
    assert evolutions(lake) == [{"schema_id": 1, "changes": ["add extra string"], "reason": "because"}]
    assert lake.state().sections == before.sections
    assert lake.rows() == 5
    assert evolve(lake) == (), "a second call finds nothing to do"


@pytest.mark.parametrize("fault", [f for f in Fault if f not in (Fault.AWAY_AFTER, Fault.ON_ITS_WAY)])
@pytest.mark.parametrize("times", [1, 2])
def test_an_unknown_outcome_is_read_back_and_nothing_is_made_twice(lake: Lake, fault: Fault, times: int) -> None:
    lake.catalog.faults.extend([fault] * times)
    assert evolve(lake) == (EXTRA,)
    assert len(evolutions(lake)) == 1
    assert lake.load().metadata.last_column_id == 3


def test_a_request_that_arrives_late_changes_nothing_any_more(lake: Lake) -> None:
    lake.catalog.faults.append(Fault.ON_ITS_WAY)
    assert evolve(lake) == (EXTRA,)
    with pytest.raises(CommitFailedException):
        lake.catalog.deliver()
    assert len(evolutions(lake)) == 1
    assert [f.name for f in lake.load().schema().fields] == ["id", "note", "extra"]


def test_a_catalog_that_goes_away_leaves_an_unknown_outcome_that_the_next_call_reads(lake: Lake) -> None:
    lake.catalog.faults.append(Fault.AWAY_AFTER)
    with pytest.raises(CommitUnknownError):
        evolve(lake)
    with pytest.raises(CatalogError):
        evolve(lake)
    lake.catalog.away = False
    assert evolve(lake) == ()
    assert len(evolutions(lake)) == 1


@pytest.mark.parametrize("error", [BadRequestError, ForbiddenError, NotImplementedError])
def test_a_refusal_is_distinguished_and_changes_nothing(lake: Lake, error: type[Exception]) -> None:
    def refuse() -> None:
        raise error("no schema is changed here")

    lake.catalog.before_commit = refuse
    with pytest.raises(CommitRefusedError, match="LC3041"):
        evolve(lake)
    assert evolutions(lake) == []


def test_a_column_that_another_engine_makes_meanwhile_is_not_made_again(lake: Lake) -> None:
    def other() -> None:
        lake.catalog.before_commit = lambda: None
        with lake.another() as catalog, catalog.load_table(NAME).update_schema() as update:
            update.add_column("extra", LongType())

    lake.catalog.before_commit = other
    assert evolve(lake) == ()
    assert lake.load().schema().find_field("extra").field_type == LongType()


def test_an_append_that_is_on_its_way_is_published_next_to_the_change(lake: Lake) -> None:
    epoch = lake.state().sections[0].epoch
    request = lake.request(staged((0, 5, 9), epoch=epoch))

    def change() -> None:
        lake.catalog.before_commit = lambda: None
        evolve(Lake(lake.path))

    lake.catalog.before_commit = change
    assert len(lake.publish(request).published) == 1
    assert (lake.rows(), len(evolutions(lake))) == (9, 1)


def test_after_a_rollback_nothing_is_changed_before_the_new_epoch(lake: Lake) -> None:
    metadata = lake.load().metadata
    lake.roll_back(metadata.snapshots[0].snapshot_id)
    assert evolve(lake) == ()
    assert "extra" not in lake.load().schema().column_names


def test_a_table_that_was_made_anew_meanwhile_is_left_alone(lake: Lake) -> None:
    def anew() -> None:
        lake.catalog.drop_table(NAME)
        lake.create()

    lake.catalog.before_commit = anew
    with suppress(LakecommitError):
        evolve(lake)
    table = lake.load()
    assert "extra" not in table.schema().column_names
    assert not table.metadata.snapshots


def test_the_decision_in_the_summary_stays_small(lake: Lake) -> None:
    many = [Change(path=(f"column_{n}",), kind=StringType()) for n in range(5_000)]
    text = evolved_to_text(3, many, "because")
    assert len(text) < 5_000
    assert "more" in json.loads(text)["changes"][-1]


@pytest.mark.parametrize("number", [1, 2, 3, 7])
def test_however_long_names_types_and_the_reason_are(number: int) -> None:
    wide = StructType(*(NestedField(n + 1, f"inner_{n}", StringType(), required=False) for n in range(400)))
    text = evolved_to_text(3, [Change(path=(f"c{n}",), kind=wide) for n in range(number)], "because " * 2_000)
    answer = json.loads(text)
    assert len(text) < 5_000
    assert answer["changes"][0].startswith("add c0 struct<inner_0")
    assert answer["reason"].startswith("because because")


def test_a_comment_is_no_longer_than_catalogs_take_it(lake: Lake) -> None:
    evolve(lake, reason="because " * 2_000)
    doc = lake.load().schema().find_field("extra").doc
    assert doc is not None
    assert len(doc) == 255
