# SPDX-License-Identifier: Apache-2.0
"""Options of continuous mode: what ends a window, the run's lifetime, its log and the kept snapshots.

Contract: frozen and valid once made; touches nothing. The landing's own ``max_records`` and ``max_bytes`` limit a
window.

Failure story: an invalid time is a :class:`SpecError` that names the option.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta

from airflow_provider_lakecommit.exceptions import SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowOptions:
    """Options of one continuous run.

    :param window_age: open the next window when the oldest unplanned record may be this old
    :param lifetime: open no window after this time; ``None``: until stopped
    :param interval: time between log lines, and between clean-ups of the tables
    :param keep_snapshots: expire older snapshots of this landing; ``None``: none
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
