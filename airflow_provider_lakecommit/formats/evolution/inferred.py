# SPDX-License-Identifier: Apache-2.0
"""The interface of sources of wanted columns: a sample of records, or the registry's schemas of their writers.

A :class:`TypeSource` returns the columns of some records. For a column that the table has, and whose values the
decoder takes as they are (a text for a date), it returns the table's type, so that comparison finds only what the
decoder would refuse. It writes nothing and is bounded in time. Factories are in
:data:`~airflow_provider_lakecommit.core.formats.SCHEMA_SOURCES`. An unreachable source raises a transient error; it
never returns less because of that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any, Protocol, cast

from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from airflow_provider_lakecommit.core import SCHEMA_SOURCES, Coverage
from airflow_provider_lakecommit.formats.evolution.changes import Finding, Limits
from airflow_provider_lakecommit.landing import Landing

MOST_NAMED = 3
"""Ranges and schemas named in a description."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSample:
    """Values with their places, ``None`` for tombstones.

    ``own`` are of the planned ``ranges``; ``before`` are records at ``seen``, which earlier windows have decoded.
    """

    own: Sequence[tuple[str, bytes | None]] = ()
    before: Sequence[tuple[str, bytes | None]] = ()
    ranges: Coverage = field(default_factory=Coverage)
    observed: Coverage = field(default_factory=Coverage)

    @property
    def values(self) -> int:
        return len(self.own) + len(self.before)

    @property
    def description(self) -> str:
        return f"{self.values} records of {_some(self.ranges)}" + (
            f" and of {_some(self.observed)}" if self.observed else ""
        )


def _some(coverage: Coverage) -> str:
    """Describe the first of many ranges: the text is in table histories and column comments."""
    if len(coverage.items()) <= MOST_NAMED:
        return str(coverage)
    more = len(coverage.items()) - MOST_NAMED
    return f"{Coverage.of(coverage.items()[:MOST_NAMED])} and {more} more ranges"


@dataclass(frozen=True, slots=True, kw_only=True)
class InferredTypes:
    """The wanted columns, whose ids mean nothing; ``origin`` is their source, in words that follow *by*."""

    columns: StructType
    origin: str
    left_out: tuple[Finding, ...] = ()
    misfits: tuple[Finding, ...] = ()
    limits: Limits = field(default_factory=Limits)


class TypeSource(Protocol):
    """Infers the columns of records."""

    def sample(self, ranges: Coverage, observed: Coverage) -> RecordSample:
        """Return what shows the records' columns.

        :param observed: single records of earlier windows with unknown fields
        """

    def inferred(self, schema: Schema, sample: RecordSample) -> InferredTypes:
        """Infer the columns of the records.

        :param schema: the table's present one
        :param sample: of this source, or the part of it for this table
        """


def source_for(landing: Landing, kafka: Mapping[str, Any]) -> TypeSource:
    """Return the source of a landing's format."""
    return cast(TypeSource, resolve_name(SCHEMA_SOURCES[landing.decoding.name])(landing, kafka))
