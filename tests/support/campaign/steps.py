# SPDX-License-Identifier: Apache-2.0
"""A sequence of steps: how it is made from a seed, written as text, and read again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Step", "parsed", "sequence", "written"]


@dataclass(frozen=True, slots=True)
class Step:
    """An operation, and the seed of all that it chooses: so a step does the same whatever is left out before it."""

    kind: str
    seed: int


def sequence(seed: int, kinds: Sequence[str], weights: Sequence[int], length: int) -> tuple[Step, ...]:
    """The steps of a seed."""
    chance = random.Random(seed)
    return tuple(Step(kind, chance.randrange(1 << 20)) for kind in chance.choices(kinds, weights, k=length))


def written(steps: Sequence[Step]) -> str:
    """As ``land:17 replay:4``."""
    return " ".join(f"{s.kind}:{s.seed}" for s in steps)


def parsed(text: str) -> tuple[Step, ...]:
    """What :func:`written` has written."""
    parts = (word.rsplit(":", 1) for word in text.split())
    return tuple(Step(kind, int(seed)) for kind, seed in parts)
