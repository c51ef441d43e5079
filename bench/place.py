# SPDX-License-Identifier: Apache-2.0
"""Where all contestants of one run land: a broker, a catalog in SQLite, a folder."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn
from uuid import uuid4

from pyiceberg.catalog import Catalog, load_catalog

from airflow_provider_lakecommit.landing import Landing, Window
from bench.orders import BY_DAY_AND_BUCKET
from bench.shapes import ORDERS, Shape
from dev.paths import run_dir
from dev.servers.kafka import Broker

__all__ = ["SPECS", "Place", "place_of"]

SPECS = ("day", "day+bucket")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where all of them land, and the options of the run."""

    broker: Broker
    catalog: Catalog
    settings: Mapping[str, str]
    folder: Path
    options: argparse.Namespace

    @property
    def kafka(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.broker.bootstrap}

    def landing(self, topic: str, shape: Shape = ORDERS) -> Landing:
        """A landing of JSON of its own, and its table."""
        name = f"{topic}_{uuid4().hex[:8]}".replace("-", "_")
        spec = BY_DAY_AND_BUCKET if self.options.spec == "day+bucket" else shape.by_day
        self.catalog.create_table(f"bench.{name}", shape.schema, partition_spec=spec)
        return Landing(
            name=name,
            topics=topic,
            table=f"bench.{name}",
            dead_letter_table=f"bench.{name}_dead",
            timestamps=dict.fromkeys(shape.times, "epoch_millis"),
            window=Window(slice_records=self.options.slice_records, groups=self.options.groups),
        )


@contextmanager
def place_of(options: argparse.Namespace) -> Iterator[Place]:
    """A place with nothing in it, removed at the end, also where a signal asks for that."""
    for asked in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(asked, _leave)
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=run_dir()) as folder,
        Broker(Path(folder) / "kafka") as broker,
    ):
        settings = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
        catalog = load_catalog("lakecommit", **settings)
        catalog.create_namespace("bench")
        yield Place(broker=broker, catalog=catalog, settings=settings, folder=Path(folder), options=options)


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    """Once: what is being ended is not to be interrupted in that."""
    for asked in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(asked, signal.SIG_IGN)
    sys.exit(128 + number)
