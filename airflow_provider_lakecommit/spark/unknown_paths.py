# SPDX-License-Identifier: Apache-2.0
"""Where a slice first met each field that the table lacks, or a value that its column refuses, for the next plan to
read.

Contract: the first record of each of at most :data:`MOST_PATHS` fields, by its counted path. A rejected record has its
own place. Ignored fields are only counted, so the block is decoded again by halves, at most once per field and slice;
landings without `evolve` skip this.

Rejects of an evolving table name the table's current type. The decoder's reason is kept; for a value that its column
cannot take, the column's type is appended. If a table's types change, a dead letter must name the type it was evaluated
with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import replace

from confluent_kafka import Message
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.core import NAME_LENGTH
from airflow_provider_lakecommit.formats import Block, BlockDecoder, Reject
from airflow_provider_lakecommit.spark.chunks import offset_of

MOST_PATHS = 20


class UnknownPaths:
    """Collects the places of chunks; ``found`` has topic, partition and offset by path.

    :param decoder: decoder of the values, ``None`` if the places are not needed
    """

    def __init__(self, decoder: BlockDecoder | None) -> None:
        self._decoder = decoder
        self.found: dict[str, tuple[str, int, int]] = {}

    def add(self, messages: Sequence[Message], values: Sequence[bytes], decoded: Block) -> None:
        """Add a chunk.

        :param messages: messages of the values
        """
        if self._decoder is None:
            return
        for reject in decoded.rejects:
            if reject.kind in ("unknown_field", "wrong_value") and reject.column is not None:
                self._note(reject.column, messages[reject.index])
        new = [n for n in decoded.ignored if n not in self.found and len(n) <= NAME_LENGTH]
        names = frozenset(new[: MOST_PATHS - len(self.found)])
        for name, position in _first(self._decoder, values, 0, names):
            self._note(name, messages[position])

    def _note(self, name: str, message: Message) -> None:
        if name not in self.found and len(self.found) < MOST_PATHS:
            self.found[name] = message.topic() or "", message.partition() or 0, offset_of(message)


def _first(decoder: BlockDecoder, values: Sequence[bytes], start: int, names: Set[str]) -> Iterator[tuple[str, int]]:
    """Yield the position of the first value with each of these, given that some value has all of them."""
    if not names:
        return
    if len(values) == 1:
        yield from ((name, start) for name in names)
        return
    half = len(values) // 2
    early = names & decoder.decode(values[:half]).ignored.keys()
    yield from _first(decoder, values[:half], start, early)
    yield from _first(decoder, values[half:], start + half, names - early)


_PREFIX = "the table has"


def with_types(rejects: Sequence[Reject], schemas: Collection[Schema]) -> tuple[Reject, ...]:
    """Return the rejects with the types of their columns.

    :param schemas: the schemas they were evaluated with; several tables may have different types for a column, and a
        reject does not name its table
    """
    return tuple(_typed(reject, schemas) for reject in rejects)


def _typed(reject: Reject, schemas: Collection[Schema]) -> Reject:
    if reject.kind != "wrong_value" or reject.column is None or _PREFIX in reject.reason:
        return reject
    kinds = {s.find_type(reject.column) for s in schemas if reject.column in s.column_names}
    if len(kinds) != 1 or not (kind := kinds.pop()).is_primitive:
        return reject
    return replace(reject, reason=f"{reject.reason} ({_PREFIX} {kind})")
