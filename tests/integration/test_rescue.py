# SPDX-License-Identifier: Apache-2.0
"""Rescuing what a connector announced: a real broker, real tables; the connector's part is played in its own bytes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import copy
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlparse
from uuid import uuid4

import pytest
from airflow.sdk.exceptions import AirflowFailException
from confluent_kafka import Consumer, TopicPartition
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.transforms import IdentityTransform

from airflow_provider_lakecommit.exceptions import CommitUnknownError, ConnectorError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.data_files import to_wire
from airflow_provider_lakecommit.iceberg.ledger.stage import Change, stage_untagged
from airflow_provider_lakecommit.iceberg.ledger.swap import compare_and_swap
from airflow_provider_lakecommit.operations.kafka_connect import rescue as rescuing
from airflow_provider_lakecommit.operations.kafka_connect.connector import check_stopped
from airflow_provider_lakecommit.operations.kafka_connect.disposition import Disposition
from airflow_provider_lakecommit.operations.kafka_connect.rescue import RESCUED_BY, Rescue, RescueReport
from airflow_provider_lakecommit.operators.kafka_connect import KafkaConnectOperator
from dev.servers.kafka import Broker
from tests.fakes.catalog import Fault, FaultyCatalog
from tests.fakes.lake import Clock
from tests.integration.sink import Sink
from tests.support.cli import run
from tests.support.raw_records import batches, flip
from tests.support.waiting import until

pytestmark = pytest.mark.integration


@pytest.fixture
def sink(catalog: Catalog, produce: Callable[..., Any], make_topic: Callable[..., str]) -> Sink:
    made = Sink(catalog, produce, make_topic(1), f"sink-{uuid4().hex[:6]}")
    made.create()
    return made


@pytest.fixture
def tables(catalog_properties: dict[str, str]) -> Iterator[Tables]:
    made = Tables(catalog_properties, "test")
    yield made
    made.close()


def read(sink: Sink, tables: Tables, bootstrap: str) -> Rescue:
    kafka = {"bootstrap.servers": bootstrap}
    return Rescue(kafka, tables, control_topic=sink.topic, connector=sink.connector)


def commit(sink: Sink, tables: Tables, bootstrap: str) -> RescueReport:
    (report,) = read(sink, tables, bootstrap).commit()
    return report


def dispositions(report: RescueReport) -> list[str]:
    return [j.disposition.value for j in report.files]


def test_what_was_announced_and_not_committed_is_committed_once(sink: Sink, tables: Tables, bootstrap: str) -> None:
    sink.cycle_of([1, 2], [3])
    sink.begin()
    sink.announce([4, 5])
    sink.begin()
    sink.announce([6], [7, 8, 9])
    (one_report,) = read(sink, tables, bootstrap).check()
    assert dispositions(one_report) == ["committed"] * 2 + ["waiting"] * 3
    assert sink.ids() == [1, 2, 3]
    report = commit(sink, tables, bootstrap)
    assert sink.ids() == list(range(1, 10))
    assert report.to_dict()["committed"]["rows"] == 6
    assert len(report.snapshot_ids) == 1
    # A connector that runs again passes over all of it.
    assert sink.floor() == sink.position - 1
    again = commit(sink, tables, bootstrap)
    assert (again.snapshot_ids, again.committed, dispositions(again)) == ((), (), ["committed"] * 5)
    assert sink.ids() == list(range(1, 10))


@pytest.mark.heavy
def test_two_at_once_commit_each_file_once(
    sink: Sink, catalog_properties: dict[str, str], bootstrap: str, catalog: Catalog
) -> None:
    sink.begin()
    for n in range(8):
        sink.announce([n])
    reports: list[RescueReport] = []
    at_the_line = threading.Barrier(4)

    def one() -> None:
        own = Tables(catalog_properties, "test")
        rescue = read(sink, own, bootstrap)
        at_the_line.wait()
        reports.extend(rescue.commit())
        own.close()

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sink.ids() == list(range(8))
    assert sum(len(report.committed) for report in reports) == 8


@pytest.mark.heavy
def test_in_portions_the_floor_follows_each(
    sink: Sink, tables: Tables, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rescuing, "MOST_FILES", 2)
    sink.begin()
    for n in range(5):
        sink.announce([n])
    report = commit(sink, tables, bootstrap)
    assert len(report.snapshot_ids) == 3
    assert sink.ids() == list(range(5))
    key = f"kafka.connect.offsets.{sink.topic}.{sink.group}"
    snapshots = sink.table.metadata.snapshots
    floors = [json.loads(s.summary.additional_properties[key])["0"] for s in snapshots if s.summary]
    assert floors == sorted(floors)
    assert len(set(floors)) == 3


@pytest.mark.heavy
def test_what_was_compacted_away_and_has_expired_is_not_doubled(sink: Sink, tables: Tables, bootstrap: str) -> None:
    sink.cycle_of([1, 2])
    sink.cycle_of([3])
    sink.compact()
    (compacted,) = read(sink, tables, bootstrap).check()
    assert dispositions(compacted) == ["committed"] * 2
    sink.expire()
    report = commit(sink, tables, bootstrap)
    assert dispositions(report) == ["unknown"] * 2
    assert report.refusal is not None
    assert "the connector run again" in report.refusal
    assert sink.ids() == [1, 2, 3]


@pytest.mark.heavy
def test_what_is_announced_after_snapshots_expired_is_rescued(sink: Sink, tables: Tables, bootstrap: str) -> None:
    sink.cycle_of([1, 2])
    sink.compact()
    sink.cycle_of([3])
    sink.expire()
    sink.begin()
    sink.announce([4])
    sink.compact()
    report = commit(sink, tables, bootstrap)
    assert [j.file.rows for j in report.committed] == [1]
    assert sink.ids() == [1, 2, 3, 4]


def test_a_commit_that_was_never_reported_is_observed_in_the_table(sink: Sink, tables: Tables, bootstrap: str) -> None:
    sink.begin()
    sink.commit(sink.announce([1]), announced=False)
    assert dispositions(commit(sink, tables, bootstrap)) == ["committed"]
    sink.compact()
    sink.expire()
    assert dispositions(commit(sink, tables, bootstrap)) == ["unknown"]
    assert sink.ids() == [1]


@pytest.mark.heavy
def test_what_a_connector_passed_over_is_rescued_too(sink: Sink, tables: Tables, bootstrap: str) -> None:
    sink.cycle_of([1])
    sink.begin()
    sink.announce([2, 3])
    # Its coordinator began behind them, and commits only what comes later.
    sink.cycle_of([4])
    (one_report,) = read(sink, tables, bootstrap).check()
    assert [(j.disposition, j.below_floor) for j in one_report.files] == [
        (Disposition.COMMITTED, True),
        (Disposition.WAITING, True),
        (Disposition.COMMITTED, True),
    ]
    commit(sink, tables, bootstrap)
    assert sink.ids() == [1, 2, 3, 4]


def test_another_table_of_that_name_gets_nothing(sink: Sink, tables: Tables, bootstrap: str) -> None:
    sink.begin()
    sink.announce([1])
    sink.announce([2], table_uuid=None)
    sink.catalog.drop_table(sink.name)
    (missing,) = read(sink, tables, bootstrap).check()
    assert missing.missing
    assert commit(sink, tables, bootstrap).missing
    sink.create()
    report = commit(sink, tables, bootstrap)
    assert dispositions(report) == ["other table", "unknown"]
    assert sink.ids() == []


def test_files_that_are_missing_are_reported_and_the_others_committed(
    sink: Sink, tables: Tables, bootstrap: str
) -> None:
    sink.begin()
    (first,) = sink.announce([1])
    sink.announce([2])
    Path(urlparse(first.file_path).path).unlink()
    report = commit(sink, tables, bootstrap)
    assert dispositions(report) == ["gone", "committed"]
    assert sink.ids() == [2]


@pytest.mark.heavy(but=("size", "of another table"))
@pytest.mark.parametrize(
    ("forged", "message"),
    [
        (lambda file: {"record_count": file.record_count + 4092}, "it holds 10 rows, 4102 were announced"),
        (lambda file: {"file_size_in_bytes": 3}, "3 were announced"),
        (lambda _: {"file_format": "ORC"}, "it is no file of format ORC"),
        (lambda file: {"file_path": file.file_path.replace("/sunk/", "/other/")}, "does not lie where the table has"),
        (lambda file: {"file_path": file.file_path.replace("/data/", "/data/../../other/data/")}, "no plain path"),
    ],
    ids=["rows", "size", "format", "of another table", "by a detour"],
)
def test_what_is_not_as_it_was_announced_is_left_out(
    sink: Sink, tables: Tables, bootstrap: str, forged: Callable[[Any], dict[str, Any]], message: str
) -> None:
    """Anybody who may write to the topic can announce any file."""
    sink.begin()
    file, table = sink.write(range(10)), sink.table
    path = Path(urlparse(file.file_path).path)
    other = Path(str(path).replace("/sunk/", "/other/"))
    other.parent.mkdir(parents=True, exist_ok=True)
    copy(path, other)
    (announced,) = to_wire([file], spec=table.spec(), schema=table.schema())
    sink.announce_files([replace(announced, **forged(announced))])
    sink.announce([77])
    report = commit(sink, tables, bootstrap)
    assert dispositions(report) == ["not as announced", "committed"]
    assert message in report.left_out[0].reason
    assert sink.ids() == [77]


@pytest.mark.heavy
def test_what_is_no_file_of_rows_at_all_is_left_out(sink: Sink, tables: Tables, bootstrap: str) -> None:
    sink.begin()
    (file,) = sink.announce([1])
    sink.announce([2])
    path = Path(urlparse(file.file_path).path)
    path.write_bytes(b"PAR1" + b"x" * (path.stat().st_size - 4))
    assert dispositions(commit(sink, tables, bootstrap)) == ["not as announced", "committed"]
    assert sink.ids() == [2]


@pytest.mark.heavy
def test_one_file_under_several_names_is_committed_once(sink: Sink, tables: Tables, bootstrap: str) -> None:
    sink.begin()
    file, table = sink.write([1, 2]), sink.table
    (announced,) = to_wire([file], spec=table.spec(), schema=table.schema())
    path = urlparse(file.file_path).path
    names = [f"file:{path}", f"file://{path}", path, f"file://{path.replace('/data/', '/data//')}"]
    for name in names[:3]:
        sink.announce_files([replace(announced, file_path=name)])
    assert dispositions(commit(sink, tables, bootstrap)) == ["committed"]
    sink.announce_files([replace(announced, file_path=names[3])])
    assert set(dispositions(commit(sink, tables, bootstrap))) == {"committed"}
    assert sink.ids() == [1, 2]


@pytest.mark.heavy
def test_a_corrupt_batch_of_the_log_is_named_and_the_rest_committed(
    sink: Sink, tables: Tables, bootstrap: str, broker: Broker
) -> None:
    sink.begin()
    sink.announce([1])
    sink.announce([2])
    spoilt = next(place for place, first, last in batches(broker.directory, sink.topic) if last > first)
    flip(broker.directory, sink.topic, spoilt + 61 + 10)
    report = commit(sink, tables, bootstrap)
    assert len(report.unread) == 1
    assert "corrupt" in report.unread[0]
    assert sink.ids() == [2]


def test_another_partition_spec_by_now_refuses_the_table(sink: Sink, tables: Tables, bootstrap: str) -> None:
    sink.begin()
    sink.announce([1])
    with sink.table.update_spec() as update:
        update.add_field("id", IdentityTransform(), "id")
    report = commit(sink, tables, bootstrap)
    assert dispositions(report) == ["unfit"]
    assert report.refusal is not None
    assert sink.ids() == []


@pytest.mark.heavy
def test_offsets_that_went_back_mean_that_rows_are_read_again(sink: Sink, tables: Tables, bootstrap: str) -> None:
    sink.begin()
    sink.announce([1, 2, 3])
    sink.source_end = 0
    sink.begin()
    sink.announce([1, 2])
    report = commit(sink, tables, bootstrap)
    assert dispositions(report) == ["read again", "committed"]
    assert sink.ids() == [1, 2]


def test_a_group_that_was_set_back_reads_again(
    sink: Sink, tables: Tables, bootstrap: str, make_topic: Callable[..., str]
) -> None:
    sink.source = make_topic(1)
    sink.begin()
    sink.announce([1, 2, 3])
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": sink.group})
    for offset, disposition in ((1, "read again"), (3, "waiting")):
        consumer.commit(offsets=[TopicPartition(sink.source, 0, offset)], asynchronous=False)
        (one_report,) = read(sink, tables, bootstrap).check()
        assert dispositions(one_report) == [disposition]
    consumer.close()


@pytest.mark.parametrize("suffix", ["", "-coord"])
def test_it_is_refused_while_a_user_is_at_work(
    sink: Sink, bootstrap: str, make_topic: Callable[..., str], suffix: str
) -> None:
    kafka = {"bootstrap.servers": bootstrap}
    with pytest.raises(ConnectorError, match="LC7523"):
        check_stopped(kafka, sink.connector, None)
    check_stopped(kafka, sink.connector, None, stated_gone=True)
    member = Consumer({**kafka, "group.id": sink.group + suffix, "client.id": "somebody"})
    member.subscribe([make_topic(1)])
    until(lambda: member.poll(0.1) is None and bool(member.assignment()), what="a member in the group")
    with pytest.raises(ConnectorError, match=r"1 members \(somebody\).*LC7524"):
        check_stopped(kafka, sink.connector, None, stated_gone=True)
    member.close()
    check_stopped(kafka, sink.connector, None, stated_gone=True)


@pytest.mark.heavy(but=("Fault.LOST_ANSWER", "Fault.FALSE_SUCCESS", "Fault.NOT_APPLIED"))
@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.AWAY_AFTER])
def test_an_outcome_that_is_not_known_doubles_nothing(
    sink: Sink, catalog_properties: dict[str, str], bootstrap: str, fault: Fault
) -> None:
    sink.begin()
    sink.announce([1, 2])
    faulty = FaultyCatalog("test", **catalog_properties)
    faulty.faults.append(fault)
    report = commit(sink, Tables(catalog_properties, connect=lambda *_, **__: faulty), bootstrap)
    assert (len(report.snapshot_ids), len(report.committed)) == (1, 1)
    if faulty.on_its_way:
        with pytest.raises(CommitFailedException):
            faulty.deliver()
    assert sink.ids() == [1, 2]
    faulty.close()


def test_a_catalog_that_goes_away_in_mid_commit_is_reported_and_nothing_doubled(
    sink: Sink, catalog_properties: dict[str, str], bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.begin()
    sink.announce([1, 2])
    faulty = FaultyCatalog("test", **catalog_properties)
    faulty.faults.append(Fault.AWAY_AFTER)
    monkeypatch.setattr(rescuing, "compare_and_swap", partial(compare_and_swap, retry_policy=Clock().retry_policy()))
    rescue = read(sink, Tables(catalog_properties, connect=lambda *_, **__: faulty), bootstrap)
    with pytest.raises(CommitUnknownError):
        rescue.commit()
    faulty.away = False
    (report,) = rescue.commit()
    assert (report.snapshot_ids, dispositions(report)) == ((), ["committed"])
    assert sink.ids() == [1, 2]
    faulty.close()


@pytest.mark.heavy
def test_a_landings_tag_stays_where_it_is(sink: Sink, tables: Tables) -> None:
    sink.cycle_of([1])
    file = sink.write([2])
    file.spec_id = sink.table.metadata.default_spec_id
    change: Change[None] = Change(summary={}, why=None, files=(file,))
    done = compare_and_swap(tables, sink.name, "main", lambda _: change, staging=stage_untagged)
    metadata = sink.table.metadata
    assert (done.snapshot_id, done.requests) == (metadata.current_snapshot_id, 1)
    assert set(metadata.refs) == {"main"}
    assert sink.ids() == [1, 2]


def test_the_command_shows_and_commits(
    sink: Sink, bootstrap: str, catalog_properties: dict[str, str], tmp_path: Path
) -> None:
    sink.cycle_of([1])
    sink.begin()
    sink.announce([2, 3])
    spec = tmp_path / "catalog.yaml"
    spec.write_text(json.dumps({"catalog": {**catalog_properties, "name": "test"}}))
    common = ("--bootstrap", bootstrap, "--catalog", str(spec), "--control-topic", sink.topic)
    what = ("connect", "rescue", "--connector", sink.connector, *common)
    previewed = run(*what, "--dry-run")
    assert previewed.code == 0, previewed.err
    assert "waiting: 1 files, 2 rows" in previewed.out
    assert "the connector commits 1 of the waiting files itself when it runs again" in previewed.out
    refused = run(*what)
    assert refused.code == 1
    assert "LC7523" in refused.err
    assert sink.ids() == [1]
    done = run(*what, "--connector-is-gone", "--json")
    assert done.code == 0, done.err
    assert done.value["committed"] == {"files": 1, "rows": 2, "bytes": done.value["committed"]["bytes"]}
    assert sink.ids() == [1, 2, 3]
    assert run(*what, "--table", "shop.none", "--dry-run").code == 0
    assert (
        run(
            "connect", "rescue", "--connector", "x", "--catalog", str(tmp_path / "none.yaml"), "--bootstrap", "x:1"
        ).code
        == 2
    )


def test_the_operator_shows_and_commits(
    sink: Sink, bootstrap: str, catalog_properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = {"conn_type": "kafka", "extra": {"bootstrap.servers": bootstrap}}
    iceberg = {"conn_type": "iceberg", "extra": {**catalog_properties, "name": "test"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(kafka))
    monkeypatch.setenv("AIRFLOW_CONN_ICEBERG_DEFAULT", json.dumps(iceberg))
    sink.cycle_of([1])
    sink.begin()
    sink.announce([2, 3])

    def rescue(connector_is_gone: bool = False, **options: Any) -> list[dict[str, Any]]:
        task = KafkaConnectOperator(
            task_id="rescue",
            connector=sink.connector,
            action="rescue",
            arguments={"control_topic": sink.topic, **options},
            **({"kafka_connect_conn_id": None} if connector_is_gone else {}),
        )
        ti = SimpleNamespace(dag_id="mend", task_id="rescue")
        run = SimpleNamespace(run_id="by hand", triggering_user_name="carla")
        reports: list[dict[str, Any]] = task.execute({"ti": ti, "dag_run": run})  # type: ignore[typeddict-item]
        return reports

    (one_report,) = rescue()
    assert (one_report["fates"]["waiting"]["rows"], one_report["snapshot_ids"]) == (2, [])
    assert sink.ids() == [1]
    (done,) = rescue(connector_is_gone=True, commit=True, reason="the worker is gone")
    snapshot = sink.table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    decision = snapshot.summary.additional_properties[RESCUED_BY]
    assert "carla by DAG mend, run by hand, task rescue on " in decision
    assert decision.endswith(": the worker is gone")
    assert (done["committed"]["rows"], len(done["snapshot_ids"])) == (2, 1)
    assert sink.ids() == [1, 2, 3]
    sink.begin()
    (connector_is_gone,) = sink.announce([4])
    Path(urlparse(connector_is_gone.file_path).path).unlink()
    with pytest.raises(AirflowFailException, match=r"1 files.*LC8330"):
        rescue()
