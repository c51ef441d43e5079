# SPDX-License-Identifier: Apache-2.0
"""Where a slice first met each field that the table lacks, or a value that its column does not take: so that the next
plan can look at it.

Contract: the first record of each of at most :data:`MOST_PLACES` fields, by the path under which it is counted. A
rejected record tells its place itself. Of fields that are left out only counts are known, so the block is decoded again
by halves, once for each field and slice at the worst: nothing is asked where no landing evolves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from confluent_kafka import Message

from airflow_provider_lakecommit.core import NAME_LENGTH
from airflow_provider_lakecommit.formats import Block, BlockDecoder
from airflow_provider_lakecommit.spark.positions import offset_of

__all__ = ["MOST_PLACES", "UnknownPlaces"]

MOST_PLACES = 20


class UnknownPlaces:
    """Collects as chunks come; ``found`` has topic, partition and offset by path.

    :param decoder: of the values, ``None`` if nobody asks
    """

    def __init__(self, decoder: BlockDecoder | None) -> None:
        self._decoder = decoder
        self.found: dict[str, tuple[str, int, int]] = {}

    def add(self, messages: Sequence[Message], values: Sequence[bytes], decoded: Block) -> None:
        """A chunk.

        :param messages: of the values
        """
        if self._decoder is None:
            return
        for reject in decoded.rejects:
            if reject.kind in ("unknown_field", "wrong_value") and reject.column is not None:
                self._note(reject.column, messages[reject.index])
        new = [n for n in decoded.ignored if n not in self.found and len(n) <= NAME_LENGTH]
        wanted = frozenset(new[: MOST_PLACES - len(self.found)])
        for name, place in _first(self._decoder, values, 0, wanted):
            self._note(name, messages[place])

    def _note(self, name: str, message: Message) -> None:
        if name not in self.found and len(self.found) < MOST_PLACES:
            self.found[name] = message.topic() or "", message.partition() or 0, offset_of(message)


def _first(decoder: BlockDecoder, values: Sequence[bytes], start: int, names: Set[str]) -> Iterator[tuple[str, int]]:
    """The place of the first value that has each of these, all of which some value has."""
    if not names:
        return
    if len(values) == 1:
        yield from ((name, start) for name in names)
        return
    half = len(values) // 2
    early = names & decoder.decode(values[:half]).ignored.keys()
    yield from _first(decoder, values[:half], start, early)
    yield from _first(decoder, values[half:], start + half, names - early)
