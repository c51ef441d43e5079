# SPDX-License-Identifier: Apache-2.0
"""The page next to a landing of the campaign: what it answers, and what tables and `lakecommit status` say of it.

The page reads the control topic in memory as it reads a real one. Of the tables, only snapshot summaries that Iceberg
itself defines count, and the rows that :class:`~tests.support.campaign.reader.TableReader` finds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from pyiceberg.table import StaticTable

from airflow_provider_lakecommit.control import ControlRecord
from airflow_provider_lakecommit.page import topic_reader
from airflow_provider_lakecommit.page.detail_answers import detail_of
from airflow_provider_lakecommit.page.landings import PageTopic
from airflow_provider_lakecommit.page.topic_reader import TopicReader
from airflow_provider_lakecommit.stall import watch
from tests.fakes.broker import MemoryBroker
from tests.support.campaign.play import Player
from tests.support.campaign.reader import ROWS

__all__ = ["Page", "page_of"]

CONTROL, COMMIT_ID, WINDOWS = "control", "lakecommit.commit-id", "lakecommit.windows"
Difference = tuple[str, object, str, object]
"""A number's name, as the page has it, and where it is how."""


class _Watch:
    """The control topic in memory, read on."""

    caught_up, trouble = True, None

    def __init__(self, broker: MemoryBroker) -> None:
        self._control = broker.control(CONTROL)
        self._next: dict[int, int] = {}

    def poll(self, _: float) -> Sequence[ControlRecord]:
        found: list[ControlRecord] = []
        for p in range(self._control.partitions):
            log = self._control.read(p, self._next.get(p))
            self._next[p] = log.end
            found += log.records
        return sorted(found, key=lambda r: r.timestamp)

    def close(self) -> None: ...


class _Ends:
    """The ends of the topics in memory."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self.known: Mapping[tuple[str, int], int] = {}

    def read(self, _: object) -> Mapping[tuple[str, int], int]:
        topics = self._broker.topics.items()
        self.known = {(name, n): p.end for name, t in topics for n, p in enumerate(t.partitions)}
        return self.known

    def close(self) -> None: ...


class Page:
    """The page's answers on the landing of a player, or on those of its set."""

    def __init__(self, player: Player, reader: TopicReader) -> None:
        self._player, self._reader = player, reader

    def answers(self) -> dict[str, dict[str, Any]]:
        """Return what the page shows of each landing, by its name."""
        self._reader.read()
        rows = [r for r in self._reader.rows.values() if r.state.landing]
        return {r.name: detail_of(r, (), time.time()).model_dump(mode="json") for r in rows}

    def differences(self, *, moved: bool) -> list[str]:
        """Return the numbers that are not those of the tables, of the logs, or of `lakecommit status`.

        :param moved: the ledger was moved next to the control topic, which the page sees with the next run
        """
        landing, found, answers = self._player.landing, list[Difference](), self.answers()
        chosen, heads = landing.topic, self._player.reader.read().heads
        for topic in landing.spec["topics"] if landing.is_set else [chosen]:
            landing.topic = topic
            # A landing of a set that has not run yet has no row.
            if (shown := answers.get(landing.name)) is None:
                continue
            found += _cycles(shown, table := landing.table(ROWS), _added(heads[table]) if table in heads else {})
            if not moved:
                status = landing.run("status", "SPEC").results[0]
                found += [*_partitions(shown, status), *_waiting(shown, status)]
        landing.topic = chosen
        return [f"{name}: the page has {own}, {where} {theirs}" for name, own, where, theirs in found if own != theirs]


def _cycles(shown: Mapping[str, Any], table: str, added: Mapping[str, int]) -> Iterator[Difference]:
    """Rows of a cycle are those of its snapshot, and so are the dead letters of all."""
    for cycle in shown["history"]:
        # Some slices of a partly complete cycle may wait behind a blocked range.
        if cycle["outcome"] == "complete" and cycle["commit_id"] in added:
            yield f"rows of {cycle['run']}", cycle["rows"].get(table, 0), "its snapshot", added[cycle["commit_id"]]


def _partitions(shown: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[Difference]:
    ours = {p["partition"]: p for p in shown["partitions"]}
    for theirs in status["partitions"]:
        own = ours.get(theirs["partition"])
        if own is None:
            continue
        for name in ("landed", "reported", "stable", "lag"):
            # Unknown before the page has seen anything of it.
            if own[name] is not None:
                yield f"{name} of {theirs['partition']}", own[name], "status", theirs[name]


def _waiting(shown: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[Difference]:
    for name in ("read_lag", "commit_lag"):
        # Unknown before the page has seen a report.
        if shown[name] is not None:
            yield name, shown[name], "status", status[name]
    pending = [t["pending"] for t in status["tables"]]
    slices = shown["pending"]["slices"]
    # A slice may wait for several tables.
    least, most = max((p["slices"] for p in pending), default=0), sum(p["slices"] for p in pending)
    yield "pending slices", min(max(slices, least), most), "status", slices
    yield "pending files", shown["pending"]["files"], "status", sum(p["files"] for p in pending)
    yield "blocked", bool(shown["blocked"]), "status", bool(status["blocked"])


def _added(location: str) -> Mapping[str, int]:
    """Return the records that a commit cycle added to a table, if its snapshot has nothing of earlier cycles."""
    found: dict[str, int] = {}
    for snapshot in StaticTable.from_metadata(location).metadata.snapshots:
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        if COMMIT_ID in summary and "," not in summary.get(WINDOWS, ","):
            found[summary[COMMIT_ID]] = int(summary.get("added-records", 0))
    return found


@contextmanager
def page_of(player: Player, broker: MemoryBroker) -> Iterator[Page]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch, "ControlWatch", lambda *_, **__: _Watch(broker))
        patch.setattr(watch, "TICK_SECONDS", 0.0)
        patch.setattr(topic_reader, "CommitWatch", partial(watch.CommitWatch, interval=0.0))
        patch.setattr(topic_reader, "SourceEnds", lambda _: _Ends(broker))
        reader = TopicReader(PageTopic("kafka_default", CONTROL), lambda _: {}, "cli")
        yield Page(player, reader)
        reader.close()
