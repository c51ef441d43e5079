# SPDX-License-Identifier: Apache-2.0
"""A block of records with its results for all tables of a landing.

Each value gives at least one row of at least one table, or is a reject, or is filtered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from airflow_provider_lakecommit.formats.decoder import Decoded, Decoder, Reject


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The rows by table, each with its unknown fields; rejects and filtered values are those of all tables."""

    tables: Mapping[str, Decoded]
    rejects: tuple[Reject, ...] = ()
    filtered: Sequence[int] = ()

    @property
    def ignored(self) -> Counter[str]:
        return sum((decoded.ignored for decoded in self.tables.values()), Counter[str]())

    def extended(self, by: Callable[[str, Decoded], Decoded]) -> Block:
        """Return the block with keys, headers and metadata added to the rows of each table, which may reject more."""
        made = {name: by(name, decoded) for name, decoded in self.tables.items()}
        more = [reject for decoded in made.values() for reject in decoded.rejects]
        return replace(
            self,
            tables={n: replace(decoded, rejects=()) for n, decoded in made.items()},
            rejects=tuple(sorted([*self.rejects, *more], key=lambda r: r.index)) if more else self.rejects,
        )

    def landed(self, values: int) -> Sequence[int]:
        """Return the positions of values that gave a row, in order.

        :param values: how many there are
        """
        positions: set[int] = set()
        for decoded in self.tables.values():
            if decoded.records is None:
                return range(values)
            positions.update(decoded.records)
        return sorted(positions)


class BlockDecoder(Protocol):
    """Decodes blocks of values for the tables of a landing. Keeps no rows."""

    def decode(self, values: Sequence[bytes]) -> Block:
        """Decode these values, none of which is a tombstone."""

    def close(self) -> None:
        """Release its resources."""


class OneTable:
    def __init__(self, table: str, decoder: Decoder) -> None:
        self._table, self._decoder = table, decoder

    def decode(self, values: Sequence[bytes]) -> Block:
        decoded = self._decoder.decode(values)
        rows = replace(decoded, rejects=(), filtered=())
        return Block(tables={self._table: rows}, rejects=decoded.rejects, filtered=decoded.filtered)

    def close(self) -> None:
        self._decoder.close()
