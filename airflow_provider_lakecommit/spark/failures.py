# SPDX-License-Identifier: Apache-2.0
"""Classify a slice's failure, caused by its records or by its environment, and do the slice in parts.

Contract: :func:`passes` decides by the exception. Errors of this package decide by their type. Exceptions of brokers,
storage and their client libraries (including any :class:`OSError`) are about connections, credentials and disks: they
may pass and are never counted. All others (an overflow, a value that Arrow refuses, a defect of a decoder) come from
handling records, and the same records would raise them again. Brokers are unavailable if they do not answer; bytes that
differ from what was written are corruption, not an outage.

:func:`spans_of` returns the place of a failure as far as it is known, and :func:`cut` the ranges to retry so that the
failure is isolated: first the ranges around the place, else half of the partitions, else half of the range.

:func:`in_parts` tries the parts of :func:`cut` until each is done, or fails and cannot be cut. A bad record, batch or
partition costs the others one more attempt at most. The work is bounded: after :data:`MOST_TRIES` attempts or
:data:`MOST_FAILED` failed places, the rest is left for the next cycle. If :data:`HOPELESS` parts failed and none
succeeded, records are not the cause, and the slice has failed as a whole.

Failure story: errors that may pass (unavailable brokers or storage) end the attempt, as for the whole slice; finished
parts stay done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from confluent_kafka import KafkaException

from airflow_provider_lakecommit.core import OffsetRange, Span
from airflow_provider_lakecommit.exceptions import AccountingError, LakecommitError, RecordsError, SourceError, Terminal

Spans = tuple[Span, ...]
Part = tuple[Spans, bool]
"""Ranges to retry as their own slice, and whether they are known to fail, so that they are not retried."""

_WORLD = frozenset(
    {
        "adlfs",
        "aiobotocore",
        "aiohttp",
        "azure",
        "boto3",
        "botocore",
        "fsspec",
        "gcsfs",
        "google",
        "httpx",
        "pyiceberg",
        "requests",
        "s3fs",
        "urllib3",
    }
)
"""Client libraries of storage and catalogs."""


def passes(error: Exception) -> bool:
    """Return True if the next attempt can succeed without an action, whatever the records are."""
    if isinstance(error, LakecommitError):
        return not isinstance(error, Terminal)
    return isinstance(error, OSError | KafkaException) or type(error).__module__.partition(".")[0] in _WORLD


def spans_of(error: Exception) -> Spans:
    """Return the ranges that a failure names; empty if unknown."""
    return tuple(error.spans) if isinstance(error, RecordsError | SourceError) else ()


def cut(spans: Spans, error: Exception) -> list[Part]:
    """Return the parts to retry instead of these ranges, oldest first; empty if they cannot be cut."""
    failing = [(s, r) for s in spans if (r := _within(s, spans_of(error))) is not None]
    at = dict(failing)
    if failing and any(at.get(s) != s.range for s in spans):
        found = tuple(replace(s, range=r) for s, r in failing)
        known = isinstance(error, SourceError) or sum(map(len, found)) == 1
        before = _nonempty((s, OffsetRange(s.range.start, at[s].start if s in at else s.range.end)) for s in spans)
        after = _nonempty((s, OffsetRange(at[s].end, s.range.end)) for s in spans if s in at)
        return [part for part in ((before, False), (found, known), (after, False)) if part[0]]
    if len(spans) > 1:
        half = len(spans) // 2
        return [(spans[:half], False), (spans[half:], False)]
    if isinstance(error, LakecommitError) and not isinstance(error, RecordsError | AccountingError):
        # Topic, table or plan are wrong: no part of the range can succeed.
        return []
    return _halves(spans[0])


def _within(span: Span, failing: Sequence[Span]) -> OffsetRange | None:
    """Return the part of the place inside the span."""
    for p in failing:
        start, end = max(p.range.start, span.range.start), min(p.range.end, span.range.end)
        if p.partition == span.partition and start < end:
            return OffsetRange(start, end)
    return None


def _nonempty(ranges: Iterable[tuple[Span, OffsetRange]]) -> Spans:
    return tuple(replace(s, range=r) for s, r in ranges if r)


def _halves(span: Span) -> list[Part]:
    start, end = span.range.start, span.range.end
    if end - start < 2:
        return []
    middle = (start + end) // 2
    return [((replace(span, range=OffsetRange(a, b)),), False) for a, b in ((start, middle), (middle, end))]


MOST_TRIES = 64
"""Attempts at parts of a slice in one attempt; isolating one bad record of a full slice takes about half of them."""
MOST_FAILED = 8
HOPELESS = 3


FailedPart = tuple[Spans, Exception]
"""Ranges that failed and cannot be cut, with their errors."""


def in_parts(spans: Spans, error: Exception, attempt: Callable[[Spans], None]) -> list[FailedPart]:
    """Do what can be done of failed ranges; return the parts that cannot.

    :param error: why they failed together
    :param attempt: does and reports some of them, or raises
    :raises Exception: from an attempt, if it may pass by itself
    """
    failed: list[FailedPart] = []
    todo = [(part, error) for part in reversed(cut(spans, error))]
    tries = done = hopeless = 0
    if not todo:
        return [(spans, error)]
    while todo and tries < MOST_TRIES and len(failed) < MOST_FAILED:
        (part, bad), cause = todo.pop()
        if bad:
            failed.append((part, cause))
            continue
        tries += 1
        try:
            attempt(part)
            done += 1
        except Exception as e:
            if passes(e):
                raise
            smaller = cut(part, e)
            todo += [(each, e) for each in reversed(smaller)]
            if not smaller:
                failed.append((part, e))
                hopeless += 1
        if hopeless == HOPELESS and not done:
            return [(spans, error)]
    return failed
