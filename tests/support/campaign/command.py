# SPDX-License-Identifier: Apache-2.0
"""Play sequences again, or many: ``python -m tests.support.campaign 17``, ``… 0-1999 --processes 2``, or the steps that
a failure shows.

A failing sequence is shrunk to the fewest steps that fail (``--as-it-is``: it is not); at the end the covered pairs and
triples of operations are shown. The exit code is 1 if a sequence failed.
"""

from __future__ import annotations

import shutil
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from tests.support.campaign.operations import SHAPES, operations_of
from tests.support.campaign.pairs import Covered
from tests.support.campaign.play import CampaignError, memory_player, play
from tests.support.campaign.shrink import shrunk
from tests.support.campaign.steps import Step, parsed, sequence, written

__all__ = ["LENGTH", "in_memory", "main", "steps_of"]

LENGTH = 12
Sequences = Iterator[tuple[str, tuple[Step, ...]]]


def steps_of(seed: int, shape: str = "plain", *, real: bool = False) -> tuple[Step, ...]:
    """The sequence of a seed."""
    known = operations_of(shape, real=real)
    return sequence(seed, [*known], [o.weight for o in known.values()], LENGTH)


def in_memory(steps: Sequence[Step], shape: str) -> list[str]:
    """Play in a folder of its own; returns the executed kinds.

    :raises CampaignError: something is wrong
    """
    folder = Path(tempfile.mkdtemp(prefix="campaign-"))
    try:
        with memory_player(folder, shape) as player:
            return play(player, steps)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fails(steps: Sequence[Step], shape: str) -> bool:
    try:
        in_memory(steps, shape)
    except CampaignError:
        return True
    return False


def _named(words: Sequence[str], shape: str) -> Sequences:
    for word in words:
        if ":" in word:
            yield "steps", parsed(word)
        else:
            first, _, last = word.partition("-")
            yield from ((str(n), steps_of(n, shape)) for n in range(int(first), int(last or first) + 1))


def _played(options: Namespace, named: tuple[str, tuple[Step, ...]]) -> list[str] | None:
    """The executed kinds of one sequence; None if it failed, which is shown."""
    name, steps = named
    try:
        return in_memory(steps, options.shape)
    except CampaignError as e:
        least = steps if options.as_it_is else shrunk(steps, partial(_fails, shape=options.shape))
        print(f"{name} fails: {written(least)}\n{e}\n", flush=True)
        return None


def main(arguments: Sequence[str]) -> int:
    """Play what is named; the exit code."""
    parser = ArgumentParser(prog="python -m tests.support.campaign")
    parser.add_argument("names", nargs="+", help="seeds as 17 or 0-1999, or steps as a failure shows them")
    parser.add_argument("--shape", choices=SHAPES, default=SHAPES[0], help="what they are played on")
    parser.add_argument("--as-it-is", action="store_true", help="leave failing sequences as long as they are")
    parser.add_argument("--processes", type=int, default=1, help="how many sequences at a time")
    options = parser.parse_args(arguments)
    covered = Covered(tuple(operations_of(options.shape)))
    failed = 0
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        for executed in pool.map(partial(_played, options), _named(options.names, options.shape)):
            if executed is None:
                failed += 1
            else:
                covered.add(executed)
    print("\n".join([*covered.lines(), f"{failed} sequences failed"]))
    return 1 if failed else 0
