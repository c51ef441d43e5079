# SPDX-License-Identifier: Apache-2.0
"""What the page knows outlives its process, and a file that is damaged or of something else is never believed."""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from airflow_provider_lakecommit.core.model import ReadPosition
from airflow_provider_lakecommit.kafka.control_log import ControlRecord, ControlTopicInfo
from airflow_provider_lakecommit.page.history import PageHistory
from airflow_provider_lakecommit.page.landings import PageTopic
from airflow_provider_lakecommit.page.memory import TopicMemory
from airflow_provider_lakecommit.stall.state import waiting
from airflow_provider_lakecommit.stall.verdict import State
from airflow_provider_lakecommit.stall.watch import CommitWatch, WatchedTopic
from airflow_provider_lakecommit.wire.events import (
    DataComplete,
    DataWritten,
    Event,
    Payload,
    StartCommit,
    TopicPartitionOffset,
    encode,
)
from airflow_provider_lakecommit.wire.records import table_reference
from bench.page import Landing
from tests.unit.stall.test_events import file

PLACE = PageTopic("kafka_default", "control")
INFO = ControlTopicInfo(cluster_id="c", topic_id="t", partitions=1)


def connector() -> Iterator[tuple[bytes, bytes, list[tuple[str, bytes]]]]:
    """A cycle under way: it has answers, and files that wait."""
    commit = uuid4()
    done = TopicPartitionOffset(topic="orders", partition=0, offset=1, timestamp=None)
    payloads: list[Payload] = [
        StartCommit(commit_id=commit),
        DataWritten(
            commit_id=commit,
            table=table_reference("lake", "shop.sink", UUID(int=1)),
            data_files=(file(5),),
            delete_files=(),
            partition_fields=(),
        ),
        DataComplete(commit_id=commit, assignments=(done,)),
    ]
    for payload in payloads:
        event = Event(id=uuid4(), timestamp=datetime.now(UTC), group_id="connect-orders", payload=payload)
        yield encode(event), b"task-1", []


@pytest.fixture
def told() -> tuple[TopicMemory, dict[str, State]]:
    """Two landings and a connector in the middle of a cycle, as a reader has them."""
    memory, offsets = TopicMemory(), count()
    watched = WatchedTopic(topic="control", completion_timeout=60.0)
    watch = CommitWatch(watched, dict, heard=memory.heard)
    landings = [Landing("orders"), Landing("clicks")]
    records = [(o.value, o.key, list(o.headers)) for one in landings for _ in range(3) for o in one.cycle()]
    records += [(o.value, o.key, list(o.headers)) for o in list(landings[0].cycle())[:2]]
    for value, key, headers in [*records, *connector()]:
        record = ControlRecord(
            partition=0,
            offset=next(offsets),
            timestamp=datetime.now(UTC),
            key=key,
            value=value,
            headers=tuple(headers),
            leader_epoch=3,
        )
        watch._fold.take(record)
    return memory, dict(watch.groups())


def kept(folder: Path, told: tuple[TopicMemory, dict[str, State]]) -> PageHistory:
    history = PageHistory(folder, PLACE)
    assert history.write(INFO, *told)
    history.close()
    assert history.path is not None
    return history


def test_all_of_it_comes_back(tmp_path: Path, told: tuple[TopicMemory, dict[str, State]]) -> None:
    memory, states = told
    found = kept(tmp_path / "made", told).read(INFO)
    assert found is not None
    again, known = found
    assert known == states
    assert waiting(known["connect-orders"]) == waiting(states["connect-orders"]) != ()
    assert known["connect-orders"].answers == states["connect-orders"].answers is not None
    assert again.cycles == memory.cycles
    assert again.cycles["connect-orders"].tasks[0].id == "task-1"
    assert again.cycles["connect-orders"].totals.files == 1
    assert (
        again.positions == memory.positions == {0: ReadPosition(offset=len(list(again.positions)) + 28, leader_epoch=3)}
    )
    assert {g: c.looks for g, c in again.clocks.items()} == {g: c.looks for g, c in memory.clocks.items()}
    assert set(again.clocks) == {"lakecommit-orders", "lakecommit-clicks"}
    now = datetime.now(UTC).timestamp()
    assert [t.shown(now) for t in again.trends.values()] == [t.shown(now) for t in memory.trends.values()]
    assert sum(v or 0 for v in again.trends["lakecommit-orders"].shown(now)[1].values["read"]) == 4 * 40_000


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def without_its_end(path: Path) -> None:
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(gzip.compress(b"".join(lines[:-1])))


def writable_by_all(path: Path) -> None:
    path.chmod(0o666)


def a_link(path: Path) -> None:
    path.rename(path.with_suffix(".real"))
    path.symlink_to(path.with_suffix(".real"))


def of_other_types(path: Path) -> None:
    lines = gzip.decompress(path.read_bytes()).splitlines()
    group = json.loads(lines[2])
    group[2][0] = {"cycles": "none"}
    path.write_bytes(gzip.compress(b"\n".join([*lines[:2], json.dumps(group).encode(), *lines[3:]])))


def deep(path: Path) -> None:
    lines = gzip.decompress(path.read_bytes()).splitlines()
    path.write_bytes(gzip.compress(lines[0] + b"\n" + b"[" * 100_000))


@pytest.mark.parametrize(
    "spoil", [cut, flipped, emptied, without_its_end, writable_by_all, a_link, of_other_types, deep]
)
def test_a_damaged_or_foreign_file_is_put_aside(
    tmp_path: Path,
    told: tuple[TopicMemory, dict[str, State]],
    spoil: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    history = kept(tmp_path, told)
    assert history.path is not None
    spoil(history.path)
    with caplog.at_level(logging.WARNING):
        assert history.read(INFO) is None
    assert "is put aside" in caplog.text
    assert history.path.with_suffix(".aside").exists()
    assert history.read(INFO) is None
    assert history.write(INFO, *told), "it is kept anew"
    history.close()
    assert history.read(INFO) is not None


@pytest.mark.parametrize(
    "other", [replace(INFO, topic_id="made anew"), replace(INFO, cluster_id="another")], ids=["topic", "cluster"]
)
def test_a_topic_that_was_made_anew_is_another(
    tmp_path: Path, told: tuple[TopicMemory, dict[str, State]], other: ControlTopicInfo
) -> None:
    assert kept(tmp_path, told).read(other) is None


def test_the_first_process_writes_and_others_only_read(
    tmp_path: Path, told: tuple[TopicMemory, dict[str, State]]
) -> None:
    first, second = PageHistory(tmp_path, PLACE), PageHistory(tmp_path, PLACE)
    assert first.write(INFO, *told)
    assert not second.write(INFO, *told)
    assert second.read(INFO) is not None
    first.close()
    assert second.write(INFO, *told)
    second.close()
    assert second.path is not None
    assert oct(second.path.stat().st_mode & 0o777) == "0o600"


def test_a_folder_that_cannot_be_written_is_told_once(
    tmp_path: Path, told: tuple[TopicMemory, dict[str, State]], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    history = PageHistory(tmp_path / "file" / "below", PLACE)
    with caplog.at_level(logging.WARNING):
        assert not history.write(INFO, *told)
        assert not history.write(INFO, *told)
    assert caplog.text.count("cannot be written") == 1
    nowhere = PageHistory(None, PLACE)
    assert (nowhere.write(INFO, *told), nowhere.read(INFO)) == (False, None)
