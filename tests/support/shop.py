# SPDX-License-Identifier: Apache-2.0
"""Topics of one prefix and a landing set of all of them, for tests of the command line."""

from __future__ import annotations

import json
from copy import copy
from pathlib import Path
from typing import Any
from uuid import uuid4

from confluent_kafka.admin import AdminClient
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog

from tests.fixtures.kafka import Sender, create_topic
from tests.support.cli import LAND_SECONDS, Answer, run
from tests.support.declared import nested_set

__all__ = ["Shop"]

CREATE = {"schema": [{"name": "id", "type": "long", "required": True}]}


class Shop:
    """Topics of one prefix, and a set of all of them."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.prefix = f"shop-{uuid4().hex[:6]}"
        self.admin, self.sender = AdminClient({"bootstrap.servers": bootstrap}), Sender(bootstrap)
        self.path = folder / "set.yaml"
        self.catalog = {
            "name": "lake",
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
        }
        self.values: dict[str, Any] = {
            "name": "shop",
            "topics_pattern": rf"{self.prefix}\.(?P<what>.*)",
            "table": "lake.{what}",
            "missing_table": "create",
            "defaults": {"create": CREATE, "control_topic": f"{self.prefix}-control"},
            "kafka": {"bootstrap.servers": bootstrap},
            "catalog": self.catalog,
            "spark": {"master": "local[2]"},
        }

    def topic(self, what: str, ids: range = range(0), partitions: int = 2) -> str:
        name = f"{self.prefix}.{what}"
        create_topic(self.admin, name, partitions)
        self.send(what, ids, partitions)
        return name

    def send(self, what: str, ids: range, partitions: int = 2) -> None:
        for partition in range(partitions):
            self.sender.produce(f"{self.prefix}.{what}", [{"id": n} for n in ids[partition::partitions]], partition)

    def with_file(self, name: str) -> Shop:
        """The same topics and tables, with a spec in a file of its own."""
        other = copy(self)
        other.path = self.path.with_name(name)
        return other

    def write(self, **changed: object) -> Path:
        """Its spec, with some keys that are others."""
        self.path.write_text(json.dumps(nested_set(**{**self.values, **changed})))
        return self.path

    def run(self, command: str, *more: str, **changed: object) -> Answer:
        how = ("--json",) if command == "land" else ()
        return run(*command.split(), str(self.write(**changed)), *how, *more, timeout=LAND_SECONDS)

    def ids(self, table: str) -> list[int]:
        found = load_catalog(**self.catalog).load_table(f"lake.{table}").scan().to_arrow()
        return sorted(found.column("id").to_pylist())

    def has(self, table: str) -> bool:
        """Is there a table with rows?"""
        catalog, name = self.sql(), f"lake.{table}"
        found = catalog.load_table(name).current_snapshot() if catalog.table_exists(name) else None
        return found is not None and bool(self.ids(table))

    def sql(self) -> SqlCatalog:
        return SqlCatalog(**self.catalog)
