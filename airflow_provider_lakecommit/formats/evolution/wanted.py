# SPDX-License-Identifier: Apache-2.0
"""The door to where wanted columns come from: a sample of the records, or what a registry says of their writers.

Contract: a :class:`WantedSource` says what columns the records of some ranges have. Where a table has a column already
and the format's decoder takes such values as they are (a text for a date, say), the source gives the table's own type:
what is held against the table then is only what the decoder would refuse. What a source cannot give a type is named in
``left_out``, what it knows not to fit in ``misfits``. It writes nothing, and is bounded in time.
Records are sampled once, and asked about for each of the tables that they are for.

A format's source is made by its factory in :data:`~airflow_provider_lakecommit.core.formats.SCHEMA_SOURCES`, called
with the landing and the settings of the connection to Kafka.

Failure story: a source that is away raises a transient error of the package, and the plan with it, as for the records
themselves; it never answers with less than it was asked for because of that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol, cast

from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from airflow_provider_lakecommit.core import SCHEMA_SOURCES, Coverage
from airflow_provider_lakecommit.formats.evolution.changes import LeftOut, Limits
from airflow_provider_lakecommit.formats.evolution.misfits import Misfit, Unreadable
from airflow_provider_lakecommit.landing import Landing

MOST_NAMED = 3
"""Ranges, and schemas, that are named where it is said what was looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSample:
    """Values with their places, ``None`` for tombstones: ``own`` are of the ``ranges``, ``before`` the records at
    ``seen``, which have had their fate.
    """

    own: Sequence[tuple[str, bytes | None]] = ()
    before: Sequence[tuple[str, bytes | None]] = ()
    ranges: Coverage = field(default_factory=Coverage)
    seen: Coverage = field(default_factory=Coverage)

    @property
    def values(self) -> int:
        return len(self.own) + len(self.before)

    @property
    def told(self) -> str:
        return f"{self.values} records of {_some(self.ranges)}" + (f" and of {_some(self.seen)}" if self.seen else "")


def _some(coverage: Coverage) -> str:
    """The first of many ranges: it is told at each change, in a table's history and in the comments of its columns."""
    if len(coverage.items()) <= MOST_NAMED:
        return str(coverage)
    more = len(coverage.items()) - MOST_NAMED
    return f"{Coverage.of(coverage.items()[:MOST_NAMED])} and {more} more ranges"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The columns of records, whose ids mean nothing, and where that is from, in words that follow *by*."""

    columns: StructType
    told_by: str
    left_out: tuple[LeftOut, ...] = ()
    misfits: tuple[Misfit | Unreadable, ...] = ()
    limits: Limits = field(default_factory=Limits)


class WantedSource(Protocol):
    """Infers the columns of records."""

    def sample(self, ranges: Coverage, seen: Coverage) -> RecordSample:
        """Of the records that it is asked about, what it tells their columns by.

        :param seen: single records read before, in which tasks met fields that the table lacks
        :raises SourceError: the records may not be read
        :raises SourceUnavailableError: the brokers do not answer
        """

    def wanted(self, schema: Schema, sample: RecordSample) -> Wanted:
        """Infer the columns of the records.

        :param schema: of their table, as it is now
        :param sample: of this source, or those of its records that are for the table
        :raises SourceUnavailableError: the source or registry does not answer
        """


def source_for(landing: Landing, kafka: Mapping[str, Any]) -> WantedSource:
    """Return the source of a landing's format.

    :raises KeyError: the format has none
    """
    module, _, name = SCHEMA_SOURCES[landing.format].partition(":")
    factory = getattr(import_module(module), name)
    return cast(WantedSource, factory(landing, kafka))
