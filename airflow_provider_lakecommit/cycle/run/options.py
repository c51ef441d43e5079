# SPDX-License-Identifier: Apache-2.0
"""How a landing is followed: what ends a window, for how long, what is said and what is kept.

Contract: frozen and valid once made; touches nothing. How many records or bytes end a window is the landing's own
``max_records`` and ``max_bytes``.

Failure story: a time that is none is a :class:`SpecError` that names the option.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta

from airflow_provider_lakecommit.exceptions import SpecError

__all__ = ["FollowOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowOptions:
    """Of one run that follows.

    :param window_age: the next window is opened when the oldest record that is in none may be so old
    :param lifetime: no window is opened after that time; ``None``: until told to stop
    :param interval: how often a line is said, and the tables are kept small
    :param keep_snapshots: snapshots of this landing that are older are expired; ``None``: none is
    :raises SpecError: a time is not above zero
    """

    window_age: timedelta = timedelta(seconds=2)
    lifetime: timedelta | None = None
    interval: timedelta = timedelta(seconds=60)
    keep_snapshots: timedelta | None = timedelta(hours=1)

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if value is not None and (not isinstance(value, timedelta) or value <= timedelta(0)):
                raise SpecError("LC6216", f"follow: {f.name} {value!r} is not a time above zero")
