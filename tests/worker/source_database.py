# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL database whose rows change all the time, and what its tables contain."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg2
from psycopg2.extensions import connection as Connection

from dev.servers.postgres import Postgres

__all__ = ["CUSTOMERS", "EXAMPLES", "ORDER_LINES", "SourceDatabase", "SourceTable", "Writer"]

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SCHEMA = """
CREATE TABLE customers (
    id bigint PRIMARY KEY,
    name text NOT NULL,
    credit numeric(12, 2),
    opened_at timestamptz,
    is_active boolean,
    note text,
    attributes jsonb,
    reference uuid
);
CREATE TABLE order_lines (
    order_id bigint,
    line_no int,
    product text NOT NULL,
    price numeric(12, 2) NOT NULL,
    sent_at timestamptz,
    is_gift boolean NOT NULL,
    PRIMARY KEY (order_id, line_no)
);
"""
NAMES = ("Zoë", "O'Neil", 'a"b', "tab\there", "日本", "")
PAUSE_SECONDS = 0.004
MOST_STATEMENTS = 8
LARGE_NOTE = 12_000
"""Characters that PostgreSQL does not store in the row itself (TOAST)."""


@dataclass(frozen=True, slots=True)
class SourceTable:
    """One table, with its key.

    :param casts: how columns are read that the landed table has as text
    """

    name: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    casts: Mapping[str, str] = field(default_factory=dict)

    @property
    def match(self) -> str:
        """The row with the least key that is not below a given one; so a random key finds a row at once."""
        key = ", ".join(self.key)
        places = ", ".join(["%s"] * len(self.key))
        return f"({key}) = (SELECT {key} FROM {self.name} WHERE ({key}) >= ({places}) ORDER BY {key} LIMIT 1)"


CUSTOMERS = SourceTable(
    "customers",
    ("id",),
    ("id", "name", "credit", "opened_at", "is_active", "note", "attributes", "reference"),
    {"attributes": "attributes::text", "reference": "reference::text"},
)
ORDER_LINES = SourceTable(
    "order_lines", ("order_id", "line_no"), ("order_id", "line_no", "product", "price", "sent_at", "is_gift")
)


class SourceDatabase:
    """The tables of a shop.

    :param postgres: a server with logical replication
    :param rows: customers that exist before the connector starts, and as many order lines
    """

    def __init__(self, postgres: Postgres, rows: int) -> None:
        self._dsn = postgres.uri().replace("+psycopg2", "")
        self.rows = rows
        self.added: dict[str, tuple[str, ...]] = {CUSTOMERS.name: (), ORDER_LINES.name: ()}
        """Columns that were added to a table since."""
        chance = random.Random(rows)
        with self.connection() as connection, connection.cursor() as cursor:
            cursor.execute(SCHEMA)
            cursor.execute((EXAMPLES / "debezium_source.sql").read_text())
            for table in (CUSTOMERS, ORDER_LINES):
                for _ in range(rows):
                    cursor.execute(*insertion(table, self.row(chance, table)))

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection, committed at the end of the block."""
        connection = psycopg2.connect(self._dsn)
        try:
            with connection:
                yield connection
        finally:
            connection.close()

    def query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self.connection() as connection, connection.cursor() as cursor:
            cursor.execute(statement, values)
            return cursor.fetchall()

    def execute(self, statement: str) -> None:
        with self.connection() as connection, connection.cursor() as cursor:
            cursor.execute(statement)

    @contextmanager
    def locked(self, table: SourceTable) -> Iterator[None]:
        """Keep others from reading a table until the end of the block."""
        with self.connection() as connection, connection.cursor() as cursor:
            cursor.execute(f"LOCK TABLE {table.name}")
            yield

    def add_column(self, table: SourceTable, name: str, kind: str) -> None:
        self.execute(f"ALTER TABLE {table.name} ADD COLUMN {name} {kind}")
        self.added[table.name] = (*self.added[table.name], name)

    def columns(self, table: SourceTable) -> tuple[str, ...]:
        return table.columns + self.added[table.name]

    def content(self, table: SourceTable) -> list[tuple[Any, ...]]:
        """All rows."""
        columns = (table.casts.get(name, name) for name in self.columns(table))
        return self.query(f"SELECT {', '.join(columns)} FROM {table.name}")

    def position(self) -> int:
        """The end of the write-ahead log, as Debezium counts."""
        return int(self.query("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")[0][0])

    # -- random values ------------------------------------------------------------------------------------------------

    def key(self, chance: random.Random, table: SourceTable) -> tuple[int, ...]:
        number = chance.randrange(1, 2 * self.rows)
        return (number,) if table is CUSTOMERS else (number // 7, number % 7)

    def row(self, chance: random.Random, table: SourceTable) -> dict[str, Any]:
        """A whole row."""
        key = dict(zip(table.key, self.key(chance, table), strict=True))
        rest = [name for name in self.columns(table) if name not in table.key]
        return key | {name: value_of(chance, name) for name in rest}

    def some_values(self, chance: random.Random, table: SourceTable) -> dict[str, Any]:
        """New values of some columns outside of the key."""
        rest = [name for name in self.columns(table) if name not in table.key]
        return {name: value_of(chance, name) for name in chance.sample(rest, chance.randint(1, 3))}


def a_text(chance: random.Random) -> str:
    return f"{chance.choice(NAMES)} {chance.randrange(10**6)}"


def an_amount(chance: random.Random) -> Decimal:
    return Decimal(chance.randrange(-(10**12) + 1, 10**12)) / 100


def a_time(chance: random.Random) -> datetime:
    return datetime(1969, 1, 1, tzinfo=UTC) + timedelta(microseconds=chance.randrange(4 * 10**15))


def a_flag(chance: random.Random) -> bool:
    return chance.random() < 0.5


def a_note(chance: random.Random) -> str:
    return chance.randbytes(LARGE_NOTE // 2 if chance.random() < 0.1 else chance.randrange(10)).hex()


def an_object(chance: random.Random) -> str:
    return json.dumps({"level": chance.randrange(9), "tags": ["é", None, 1.5], "zip": f"{chance.random()}"})


VALUES: Mapping[str, Callable[[random.Random], Any]] = {
    "name": a_text,
    "product": a_text,
    "credit": an_amount,
    "price": an_amount,
    "opened_at": a_time,
    "sent_at": a_time,
    "is_active": a_flag,
    "is_gift": a_flag,
    "note": a_note,
    "attributes": an_object,
    "reference": lambda chance: str(UUID(int=chance.getrandbits(128))),
    "tier": lambda chance: chance.choice(["gold", "silver"]),
    "points": lambda chance: chance.randrange(10**12),
}
NEVER_NULL = ("name", "product", "price", "is_gift")


def value_of(chance: random.Random, column: str) -> Any:
    return None if column not in NEVER_NULL and chance.random() < 0.2 else VALUES[column](chance)


def insertion(table: SourceTable, row: Mapping[str, Any]) -> tuple[str, list[Any]]:
    places = ", ".join(["%s"] * len(row))
    statement = f"INSERT INTO {table.name} ({', '.join(row)}) VALUES ({places}) ON CONFLICT DO NOTHING"
    return statement, [*row.values()]


# -- changes ----------------------------------------------------------------------------------------------------------


class Writer(threading.Thread):
    """Changes the tables in random transactions until it is stopped; one in ten is rolled back.

    Usable as a context manager, whose end raises what stopped the writer early.
    """

    def __init__(self, database: SourceDatabase, seed: int) -> None:
        super().__init__(daemon=True)
        self._database, self._chance = database, random.Random(seed)
        self._stopped, self._error = threading.Event(), list[BaseException]()
        self.transactions = 0

    def run(self) -> None:
        try:
            with self._database.connection() as connection:
                while not self._stopped.wait(PAUSE_SECONDS):
                    with connection.cursor() as cursor:
                        for _ in range(self._chance.randint(1, MOST_STATEMENTS)):
                            for statement, values in self._change(self._chance.choice((CUSTOMERS, ORDER_LINES))):
                                cursor.execute(statement, values)
                    connection.rollback() if self._chance.random() < 0.1 else connection.commit()
                    self.transactions += 1
        except BaseException as e:
            self._error.append(e)

    def _change(self, table: SourceTable) -> Iterator[tuple[str, list[Any]]]:
        chance, database = self._chance, self._database
        key = [*database.key(chance, table)]
        match chance.choices(["insert", "update", "delete", "key", "again"], [30, 40, 15, 10, 5])[0]:
            case "insert":
                yield insertion(table, database.row(chance, table))
            case "update":
                values = database.some_values(chance, table)
                stated = ", ".join(f"{name} = %s" for name in values)
                yield f"UPDATE {table.name} SET {stated} WHERE {table.match}", [*values.values(), *key]
            case "delete":
                yield f"DELETE FROM {table.name} WHERE {table.match}", key
            case "key":
                other = [*database.key(chance, table)]
                names, places = ", ".join(table.key), ", ".join(["%s"] * len(other))
                is_free = f"NOT EXISTS (SELECT FROM {table.name} WHERE ({names}) = ({places}))"
                values = [*other, *key, *other]
                stated = ", ".join(f"{name} = %s" for name in table.key)
                yield f"UPDATE {table.name} SET {stated} WHERE {table.match} AND {is_free}", values
            case "again":
                row = database.row(chance, table)
                same = " AND ".join(f"{name} = %s" for name in table.key)
                yield f"DELETE FROM {table.name} WHERE {same}", [row[name] for name in table.key]
                yield insertion(table, row)

    def stop(self) -> None:
        self._stopped.set()
        self.join()
        if self._error:
            raise self._error[0]

    def __enter__(self) -> Writer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
