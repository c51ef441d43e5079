# SPDX-License-Identifier: Apache-2.0
"""A landing of the campaign whose table has one row per key, and the changes that it lands."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.support.campaign.changes import Change, Key, UpsertModel, Way
from tests.support.campaign.landing import MOST_RECORDS, CampaignLanding
from tests.support.campaign.model import Born

__all__ = ["WAYS", "UpsertLanding", "upserting"]

WAYS: Mapping[str, Way] = {
    "upsert-hard": Way(deletes="hard", key={"k": "long"}, partition_by=("bucket(2, k)",)),
    "upsert-soft": Way(deletes="soft", key={"k": "int", "part": "string"}, partition_by=("part",)),
    "upsert-ignore": Way(deletes="ignore", key={"k": "uuid", "day": "date"}),
    "upsert-envelope": Way(deletes="hard", key={"k": "long"}, ordered=True, envelope=True),
    "upsert-sql": Way(deletes="soft", key={"k": "long"}, ordered=True, envelope=True, sql=True),
    "upsert-late": Way(deletes="soft", key={"k": "decimal(9,2)", "flag": "boolean"}, ordered=True, anywhere=True),
}
KEYS = 8


def upserting(spec: Mapping[str, Any], way: Way) -> dict[str, Any]:
    """Return what a landing declares that upserts in some way."""
    columns = [{"name": name, "type": kind, "required": True} for name, kind in way.key.items()]
    columns += [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
    columns += [{"name": "ver", "type": "long"}] if way.ordered else []
    columns += [{"name": "_is_deleted", "type": "boolean"}] if way.deletes == "soft" else []
    out = {
        **spec,
        "create": {"schema": columns, "partition_by": [*way.partition_by]},
        "unknown_fields": "ignore",
        "upsert_key": [*way.key],
        "upsert_deletes": way.deletes,
        "upsert_order_by": ["ver", "offset"] if way.ordered else "offset",
    }
    if way.envelope:
        sql = "select * replace (name || '' as name) from record"
        record = [{**c, "required": False} for c in columns if c["name"] != "_is_deleted"]
        through = {"transform": sql, "record_schema": record} if way.sql else {}
        return {**out, "unwrap": {"envelope": "debezium", "columns": {"ver": "source.lsn"}}, **through}
    out |= {"key": {"columns": [*way.key], "format": "json"}, "evolve": "add"}
    return {**out, "headers": {"ver": "ver"}} if way.ordered else out


@dataclass(slots=True)
class UpsertLanding(CampaignLanding):
    """Each record is a change of a key. Those of a key are in one partition, unless the way says otherwise."""

    way: Way = field(kw_only=True)
    shares: dict[str, int] = field(default_factory=dict)
    """Over how many partitions the keys of a topic are spread: those that it has later get keys of their own."""
    version: int = 0
    deleted: dict[Key, int] = field(default_factory=dict)
    """The versions of the newest deletes."""

    @property
    def starts(self) -> tuple[str, ...]:
        # What lies before the start is a backfill's, which needs traces of deletes.
        return ("earliest",) if self.way.deletes == "hard" else ("earliest", "latest")

    @property
    def changes(self) -> dict[int, Change]:
        assert isinstance(self.model, UpsertModel)
        return self.model.changes

    def produce(self, chance: Random, partition: int | None = None) -> None:
        """A few changes of keys of one partition; a changed key may move to another one."""
        p = chance.randrange(self.partitions) if partition is None else partition
        aborted, moved = chance.random() < 0.1, list[int]()
        records = list[tuple[Change, tuple[Any, ...]]]()
        for _ in range(chance.randint(1, MOST_RECORDS)):
            number = self._number(chance, p)
            if chance.random() < 0.3:
                records += self._deletion(chance, number, p)
                if chance.random() < 0.3:
                    moved.append(chance.randrange(KEYS))
            else:
                records.append(self._setting(chance, number, p))
        self._send(records, p, aborted=aborted)
        for number in moved:
            to = self._partition_of(chance, number)
            self._send([self._setting(chance, number, to)], to, aborted=False)

    def _number(self, chance: Random, p: int) -> int:
        share = self._share()
        if self.way.anywhere:
            return chance.randrange(KEYS)
        return chance.choice([n for n in range(KEYS) if n % share == p] if p < share else [100 + p])

    def _partition_of(self, chance: Random, number: int) -> int:
        return chance.randrange(self.partitions) if self.way.anywhere else number % self._share()

    def _share(self) -> int:
        return self.shares.setdefault(self.logs.topics[self.topic].topic_id, self.partitions)

    def _setting(self, chance: Random, number: int, p: int) -> tuple[Change, tuple[Any, ...]]:
        key, odd = self.way.key_of(number), chance.random()
        change = self._change(p, key, "dead" if odd < 0.05 else "set", self._version(chance, key), more=odd > 0.8)
        row = {"id": change.id, "name": change.name} | ({"more": change.id} if change.more else {})
        named = dict(zip(self.way.key, key if change.kind == "set" else [None] * len(key), strict=True))
        if not self.way.envelope:
            return change, (json.dumps(named), json.dumps(row), *self._headers(change))
        if change.kind == "dead":
            return change, (None, json.dumps({"op": "t", "id": change.id}))
        value = {"op": chance.choice("cru"), "before": None, "after": {**named, **row}}
        return change, (json.dumps(named), json.dumps({**value, "source": {"lsn": change.version}}))

    def _deletion(self, chance: Random, number: int, p: int) -> list[tuple[Change, tuple[Any, ...]]]:
        key = self.way.key_of(number)
        named = dict(zip(self.way.key, key, strict=True))
        version = self._version(chance, key, stale=self.way.deletes != "hard")
        self.deleted[key] = max(version, self.deleted.get(key, 0))
        change = self._change(p, key, "deletion", version)
        if not self.way.envelope:
            return [(change, (json.dumps(named), None, *self._headers(change)))]
        value = {"op": "d", "before": named, "after": None, "source": {"lsn": version}}
        tombstone = self._change(p, key, "nothing", version)
        return [(change, (json.dumps(named), json.dumps(value))), (tombstone, (json.dumps(named), None))]

    def _change(self, p: int, key: Key, kind: str, version: int, *, more: bool = False) -> Change:
        log = self.logs.topics[self.topic].partitions[p]
        self.next_id += 1
        return Change(
            id=self.next_id,
            key=key,
            kind=kind,
            version=version,
            more=more and kind == "set" and not self.way.envelope,
            log=log,
            epoch=len(log.epochs) - 1,
            incarnation=[*self.shares].index(self.logs.topics[self.topic].topic_id),
            partition=p,
        )

    def _version(self, chance: Random, key: Key, *, stale: bool = True) -> int:
        """Mostly the newest one; an older one only if the deletes of the key leave a trace, or are older."""
        self.version += 1
        if not (stale and chance.random() < 0.25):
            return self.version * 1000
        least = 0 if self.way.deletes != "hard" else self.deleted.get(key, 0) // 1000
        return chance.randint(least, self.version - 1) * 1000 + self.version % 1000

    def _headers(self, change: Change) -> tuple[tuple[str, bytes], ...]:
        return (("ver", str(change.version).encode()),) if self.way.ordered else ()

    def _send(self, records: list[tuple[Change, tuple[Any, ...]]], p: int, *, aborted: bool) -> None:
        topic = self.logs.topics[self.topic]
        first = topic.partitions[p].end
        self.logs.produce(self.topic, [record for _, record in records], p, aborted=aborted)
        for place, (change, _) in enumerate(records):
            if not aborted:
                change.offset = first + place
                self.changes[change.id] = change
                self.model.born[change.id] = Born(self.topic, topic.topic_id, p, first + place)
