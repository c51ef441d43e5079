# SPDX-License-Identifier: Apache-2.0
"""A slice that failed, done in parts: what fails is found and stands alone, all else is done.

Contract: :func:`in_parts` tries the parts that :func:`~airflow_provider_lakecommit.spark.failures.cut` gives until each
is done, or fails and cannot be cut. What one record, batch or partition has wrong costs the others one more attempt,
and no more than that. The work is bounded: after :data:`MOST_TRIES` attempts, or when :data:`MOST_FAILED` places are
found, what is left is left for the next cycle. Where :data:`HOPELESS` parts failed and none was done, it is no record's
trouble: then the slice has failed as a whole.

Failure story: what may pass by itself (brokers or storage that are away) ends the attempt as it would end that of the
whole slice; what was done by then is done.
"""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_lakecommit.core import Span
from airflow_provider_lakecommit.spark.failures import cut, passes

__all__ = ["HOPELESS", "MOST_FAILED", "MOST_TRIES", "FailedPart", "in_parts"]

MOST_TRIES = 64
"""Attempts at parts of a slice in one attempt at it; one bad record of a full slice takes about half of them."""
MOST_FAILED = 8
HOPELESS = 3


FailedPart = tuple[tuple[Span, ...], Exception]
"""Ranges that failed and cannot be cut, and how."""


def in_parts(
    spans: tuple[Span, ...], error: Exception, attempt: Callable[[tuple[Span, ...]], None]
) -> list[FailedPart]:
    """Do all that can be done of ranges that failed; what cannot be is returned.

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
        part, cause = todo.pop()
        if part.bad:
            failed.append((part.spans, cause))
            continue
        tries += 1
        try:
            attempt(part.spans)
            done += 1
        except Exception as e:
            if passes(e):
                raise
            smaller = cut(part.spans, e)
            todo += [(each, e) for each in reversed(smaller)]
            if not smaller:
                failed.append((part.spans, e))
                hopeless += 1
        if hopeless == HOPELESS and not done:
            return [(spans, error)]
    return failed
