# SPDX-License-Identifier: Apache-2.0
"""The topics of :mod:`bench.soak`: which landing each is for, what is produced, and the rows that must come of it.

Contract: the records of a topic are a pure function of their numbers, which count from 1, and of the numbers from which
on they have one more field. So :meth:`Topic.expected` needs no copy of what was produced. A topic whose table is
upserted has changes and deletes of :data:`KEYS` keys; each of its partitions ends with one record of a key of its own
(:meth:`Topic.closing`), which is in the table only when everything before it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from google.protobuf.message_factory import GetMessageClass

from airflow_provider_lakecommit.formats.protobuf.descriptors import file_of, message_named
from tests.fakes.registry import FakeRegistry
from tests.support.avro_shapes import encoded

__all__ = ["KEYS", "PARTITIONS", "Message", "Topic", "topics_of"]

FORMATS = ("json", "csv", "avro", "protobuf", "debezium")
PARTITIONS = 2
KEYS = 400
"""Different keys of a topic whose table is upserted."""
DELETED = 11
"""One of so many changes deletes its key."""
CONTINUOUS = (0, 4, 7)
"""Numbers of the topics that continuous landings read."""
SET = range(10, 16)
"""Numbers of the topics that one landing set reads."""
UPSERTED = (4, 5, 8, 9, 17, 19)
FASTER = 5
"""So many times the records of a scheduled landing's topic has that of a continuous one."""
EXTRA = "extra_{}"
Row = dict[str, int | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One record of Kafka."""

    partition: int
    key: bytes | None
    value: bytes | None


@dataclass(slots=True, kw_only=True)
class Topic:
    """One topic, its landing and its table.

    ``count`` is the number of the newest record, ``added`` the first record with each further field.
    """

    number: int
    format: str
    role: str
    upserts: bool
    count: int = 0
    added: list[int] = field(default_factory=list)
    sent: list[int] = field(default_factory=lambda: [0] * PARTITIONS)

    @property
    def stem(self) -> str:
        return f"{self.format}_{self.number:02d}"

    @property
    def name(self) -> str:
        """Name of the topic."""
        return f"{'set.' if self.role == 'set' else ''}{self.stem}"

    @property
    def table(self) -> str:
        return f"soak.{self.stem}"

    @property
    def landing(self) -> str:
        """Name of its landing, also in the set."""
        return f"shop.{self.table}" if self.role == "set" else self.stem

    @property
    def weight(self) -> int:
        return FASTER if self.role == "continuous" else 1

    @property
    def evolves(self) -> bool:
        """Return True if its records may get another field: those of CSV do not name their columns."""
        return self.format != "csv"

    def options(self) -> dict[str, Any]:
        """Return the options of its landing that are not the same in all."""
        columns = [{"name": "id", "type": "long", "required": True}]
        columns += [{"name": "at", "type": "long"}, {"name": "note", "type": "string"}]
        out: dict[str, Any] = {"create": {"schema": columns}, "evolve": "add" if self.evolves else "none"}
        if self.format == "debezium":
            out["transform"] = {"unwrap": "debezium"}
        elif self.format == "csv":
            out["format"] = {"name": "csv", "csv": {"columns": ["id", "at", "note"]}}
        else:
            out["format"] = self.format
        if self.upserts:
            out["upsert"] = {"key": ["id"]}
            if self.format != "debezium":
                out["columns"] = {"key": {"columns": ["id"], "format": "json"}}
        return out

    # -- what is produced -----------------------------------------------------------------------------------------

    def next(self, registry: FakeRegistry) -> list[Message]:
        """Return the next record; one more where a delete is followed by its tombstone."""
        self.count += 1
        row = self._row(self.count)
        messages = list(self._messages(row, registry, deleted=self._deletes(self.count)))
        self._note_sent(messages)
        return messages

    def closing(self, registry: FakeRegistry) -> list[Message]:
        """Return one record of a key of its own for each partition, when nothing else will be sent."""
        messages: list[Message] = []
        for row in self._closing() if self.upserts else ():
            messages += self._messages(row, registry, deleted=False)
        self._note_sent(messages)
        return messages

    def add_field(self) -> None:
        """Have all records from the next one on have one more field."""
        self.added.append(self.count + 1)

    def _note_sent(self, messages: Sequence[Message]) -> None:
        for each in messages:
            self.sent[each.partition] += 1

    # -- what must come of it -------------------------------------------------------------------------------------

    def columns(self) -> list[str]:
        """Return the columns that its table must have in the end."""
        last = self.count + 1 if self.upserts else self.count
        return ["id", "at", "note", *(EXTRA.format(n) for n, first in enumerate(self.added) if first <= last)]

    def expected(self) -> dict[int, Row]:
        """Return the rows that the table must have when everything is landed, by ``id``."""
        if not self.upserts:
            return {n: self._row(n) for n in range(1, self.count + 1)}
        rows: dict[int, Row] = {}
        for n in range(1, self.count + 1):
            row = self._row(n)
            if self._deletes(n):
                rows.pop(int(row["id"]), None)
            else:
                rows[int(row["id"])] = row
        return rows | {int(row["id"]): row for row in self._closing()}

    def _row(self, n: int) -> Row:
        row: Row = {"id": _mixed(n) % KEYS if self.upserts else n, "at": 7 * n + 1, "note": f"{self.stem} {n}"}
        return row | {EXTRA.format(k): n + k for k, first in enumerate(self.added) if n >= first}

    def _deletes(self, n: int) -> bool:
        return self.upserts and _mixed(n + 1) % DELETED == 0

    def _closing(self) -> list[Row]:
        """Return the last row of each partition."""
        rows = []
        for partition in range(PARTITIONS):
            row = self._row(self.count + 1)
            rows.append({**row, "id": KEYS + partition, "note": "closing"})
        return rows

    # -- formats --------------------------------------------------------------------------------------------------

    def _messages(self, row: Row, registry: FakeRegistry, *, deleted: bool) -> Iterator[Message]:
        number = int(row["id"])
        partition, key = number % PARTITIONS, json.dumps({"id": number}).encode() if self.upserts else None
        if self.format == "debezium":
            yield Message(partition=partition, key=key, value=_envelope(row, deleted=deleted))
            if not deleted:
                return
        value = None if deleted else self._value(row, registry)
        yield Message(partition=partition, key=key, value=value)

    def _value(self, row: Row, registry: FakeRegistry) -> bytes:
        # The key column of an upserted table comes from the record's key.
        values = {name: value for name, value in row.items() if name != "id" or not self.upserts}
        match self.format:
            case "json":
                return json.dumps(values).encode()
            case "csv":
                return ",".join(str(value) for value in values.values()).encode()
            case "avro":
                schema = _avro(tuple(values))
                return b"\0" + registry.register(f"{self.name}-value", schema).to_bytes(4) + encoded(schema, values)
        text, kind = _protobuf(tuple(values))
        number = registry.register(f"{self.name}-value", text, kind="PROTOBUF")
        return b"\0" + number.to_bytes(4) + b"\0" + bytes(kind(**values).SerializeToString())


def topics_of(landings: int) -> list[Topic]:
    """Return the topics of so many landings."""
    return [
        Topic(number=n, format=FORMATS[n % len(FORMATS)], role=_role(n), upserts=n in UPSERTED) for n in range(landings)
    ]


def _role(number: int) -> str:
    return "continuous" if number in CONTINUOUS else "set" if number in SET else "scheduled"


def _mixed(n: int) -> int:
    """Return a number that looks random."""
    x = n * 0x9E3779B97F4A7C15 % 2**64
    x ^= x >> 29
    return (x * 0xBF58476D1CE4E5B9 % 2**64) >> 32


def _envelope(row: Row, *, deleted: bool) -> bytes:
    source = {"table": "rows", "ts_ms": row["at"], "lsn": row["at"]}
    before = {"id": row["id"]} if deleted else None
    change = {"op": "d" if deleted else "c", "before": before, "after": None if deleted else row}
    return json.dumps({**change, "source": source, "ts_ms": row["at"]}).encode()


@cache
def _avro(columns: tuple[str, ...]) -> dict[str, Any]:
    fields = [{"name": name, "type": "string" if name == "note" else "long"} for name in columns]
    return {"type": "record", "name": "Change", "fields": fields}


@cache
def _protobuf(columns: tuple[str, ...]) -> tuple[str, Any]:
    kinds = ("string" if name == "note" else "int64" for name in columns)
    fields = (f"{kind} {name} = {n};" for n, (kind, name) in enumerate(zip(kinds, columns, strict=True), 1))
    text = f'syntax = "proto3"; package soak; message Change {{ {" ".join(fields)} }}'
    return text, GetMessageClass(message_named(file_of(text), "soak.Change"))
