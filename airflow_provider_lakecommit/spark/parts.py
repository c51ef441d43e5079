# SPDX-License-Identifier: Apache-2.0
"""Do a failed slice in parts, to isolate the failing ones and finish the others.

Contract: :func:`in_parts` tries the parts of :func:`~airflow_provider_lakecommit.spark.failures.cut` until each is
done, or fails and cannot be cut. A bad record, batch or partition costs the others one more attempt at most. The work
is bounded: after :data:`MOST_TRIES` attempts or :data:`MOST_FAILED` failed places, the rest is left for the next cycle.
If :data:`HOPELESS` parts failed and none succeeded, records are not the cause, and the slice has failed as a whole.

Failure story: errors that may pass (unavailable brokers or storage) end the attempt, as for the whole slice; finished
parts stay done.
"""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_lakecommit.core import Span
from airflow_provider_lakecommit.spark.failures import cut, passes

MOST_TRIES = 64
"""Attempts at parts of a slice in one attempt; isolating one bad record of a full slice takes about half of them."""
MOST_FAILED = 8
HOPELESS = 3


FailedPart = tuple[tuple[Span, ...], Exception]
"""Ranges that failed and cannot be cut, with their errors."""


def in_parts(
    spans: tuple[Span, ...], error: Exception, attempt: Callable[[tuple[Span, ...]], None]
) -> list[FailedPart]:
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
