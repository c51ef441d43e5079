# SPDX-License-Identifier: Apache-2.0
"""Which operations were executed one after the other: ordered pairs and triples, of all that there are.

Contract: pure. Only steps that were done count; a step that was refused, or had nothing to do, stands between no two
others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product

__all__ = ["Covered"]

PRINTED = 12


@dataclass(slots=True)
class Covered:
    """Counts of the executed operations, pairs and triples, over many sequences."""

    kinds: tuple[str, ...]
    sequences: int = 0
    singles: Counter[str] = field(default_factory=Counter)
    pairs: Counter[tuple[str, ...]] = field(default_factory=Counter)
    triples: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def add(self, executed: Sequence[str]) -> None:
        """Count one sequence."""
        self.sequences += 1
        self.singles.update(executed)
        self.pairs.update(pairwise(executed))
        self.triples.update(zip(executed, executed[1:], executed[2:], strict=False))

    def merge(self, other: Covered) -> None:
        """Add what others have counted."""
        self.sequences += other.sequences
        self.singles.update(other.singles)
        self.pairs.update(other.pairs)
        self.triples.update(other.triples)

    def lines(self) -> Iterator[str]:
        """The report for people."""
        many = len(self.kinds)
        yield f"{self.sequences} sequences, {self.singles.total()} executed steps of {many} operations"
        yield f"pairs: {len(self.pairs)} of {many**2}"
        yield f"triples: {len(self.triples)} of {many**3}"
        for kind in sorted(self.kinds, key=lambda k: (-self.singles[k], k)):
            yield f"  {kind}: {self.singles[kind]} times, before {self._next(kind)} others"
        missing = [f"{a} → {b}" for a, b in product(self.kinds, self.kinds) if (a, b) not in self.pairs]
        if missing:
            more = f" and {len(missing) - PRINTED} more" if len(missing) > PRINTED else ""
            yield f"pairs never executed: {', '.join(missing[:PRINTED])}{more}"

    def _next(self, kind: str) -> int:
        return sum(first == kind for first, _ in self.pairs)
