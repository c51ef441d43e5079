# SPDX-License-Identifier: Apache-2.0
"""The text form of an operation's arguments: partitions, offsets and ranges.

Contract: pure, and light, because DAG files import it. Command line and operators parse the same forms, so one accepts
what the other prints.

Failure story: any other text is a :class:`SpecError` with an example.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from airflow_provider_lakecommit.core import RangeSet
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.operations.backfill.request import moment_of

_TEMPLATED = ("{{", "{%", "{#")


def parse_offsets(text: str, hint: str) -> dict[tuple[str, int], int]:
    """Parse offsets by (topic, partition), from ``topic:0=15,topic:1=9`` or a JSON object.

    :raises SpecError: *text* is neither, or names a partition twice
    """
    pairs = [part.strip().partition("=")[::2] for part in text.split(",")]
    if text.lstrip().startswith("{"):
        try:
            pairs = [(str(partition), str(offset)) for partition, offset in json.loads(text).items()]
        except ValueError:
            raise SpecError("LC7035", hint) from None
    if not all(offset.isdecimal() for _, offset in pairs):
        raise SpecError("LC7036", hint)
    partitions = [parse_partition(partition) for partition, _ in pairs]
    if twice := [f"{t}[{n}]" for (t, n), times in Counter(partitions).items() if times > 1]:
        raise SpecError("LC7037", f"{', '.join(twice)} is named twice: state one offset")
    return dict(zip(partitions, (int(offset) for _, offset in pairs), strict=True))


def parse_partition(text: str) -> tuple[str, int]:
    """Parse ``topic:3``, and ``topic[3]`` as in messages.

    :raises SpecError: it is neither
    """
    topic, _, number = text.removesuffix("]").replace("[", ":").rpartition(":")
    if not topic or not number.isdecimal():
        raise SpecError("LC7038", f"{text!r} is not TOPIC:PARTITION, for example orders:3")
    return topic, int(number)


def parse_ranges(texts: Sequence[str], option: str = "--range") -> dict[tuple[str, int], RangeSet]:
    """Return offsets by (topic, partition), from texts as ``topic:0=15-20``, the end not included.

    :param option: option or argument with the text
    :raises SpecError: a text has another form
    """
    found: dict[tuple[str, int], RangeSet] = {}
    for text in texts:
        partition, _, ends = text.partition("=")
        start, _, end = ends.partition("-")
        if not (start.isdecimal() and end.isdecimal() and int(start) < int(end)):
            raise SpecError(
                "LC7039", f"{option} {text!r}: use TOPIC:PARTITION=FROM-TO, for example orders:3=15-20 (without 20)"
            )
        key = parse_partition(partition)
        found[key] = found.get(key, RangeSet()) | RangeSet.of((int(start), int(end)))
    return found


def parse_start(text: str, option: str = "--from") -> str | datetime | dict[tuple[str, int], int]:
    """Parse the start of a ledger: ``earliest``, ``latest``, a time, or offsets by (topic, partition).

    :param option: option or argument with the text
    :raises SpecError: *text* has another form
    """
    hint = f"{option} {text!r}: use earliest, latest, a time such as 2026-11-01T06:00, or TOPIC:PARTITION=OFFSET,…, "
    hint += "for example orders:0=1500"
    with suppress(SpecError):
        if (moment := moment_of(text, option)) is not None:
            return moment
    return text if text in ("earliest", "latest") else parse_offsets(text, hint)


def ranges_of(plain: Mapping[str, Sequence[Sequence[int]]]) -> dict[tuple[str, int], RangeSet]:
    """Return the ranges in JSON, by topic and partition."""
    return {parse_partition(p): RangeSet.of(*((int(a), int(b)) for a, b in ranges)) for p, ranges in plain.items()}


def ranges_beyond(
    now: Mapping[str, Sequence[Sequence[int]]], agreed: Mapping[str, Sequence[Sequence[int]]]
) -> Iterator[str]:
    """Yield the ranges in JSON that the agreed ones do not have, as text."""
    allowed = ranges_of(agreed)
    for (topic, number), ranges in ranges_of(now).items():
        if more := ranges - allowed.get((topic, number), RangeSet()):
            yield f"{topic}[{number}] {more}"


def is_stated(*values: object) -> bool:
    """Return True if these values are known when the DAG is parsed; templates and results of other tasks are not."""
    return all(_is_stated(value) for value in values)


def _is_stated(value: object) -> bool:
    if isinstance(value, str):
        return not any(mark in value for mark in _TEMPLATED)
    if isinstance(value, list | tuple | set | frozenset):
        return is_stated(*value)
    return value is None or isinstance(value, int | float | timedelta)


def texts_of(value: str | Iterable[str] | None) -> list[str]:
    """Return several texts, or the comma-separated parts of one."""
    found = value.split(",") if isinstance(value, str) else value or ()
    return [text for each in found if (text := str(each).strip())]
