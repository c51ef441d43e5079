# SPDX-License-Identifier: Apache-2.0
"""The requested range of a backfill: a time, or offsets; and its name.

Contract: pure, and light enough for a DAG file. The same request has the same name, so a killed command, or a task that
is retried, continues its own backfill.

Failure story: an empty or contradictory request is a :class:`SpecError` with an example.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from airflow_provider_lakecommit.core import FILLED, LIVE, RangeSet
from airflow_provider_lakecommit.exceptions import SpecError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
_EXAMPLES = "2026-11-01, 2026-11-01T06:00 or 2026-11-01T06:00:00+02:00; without an offset it is UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRequest:
    """The range of a backfill: records from ``since`` on and before ``until``, by their times, or ``ranges`` by (topic,
    partition), one for each. Without any of these it is the open backfill of that name. ``replaces``: ranges that the
    table has are landed again.
    """

    name: str
    since: datetime | None = None
    until: datetime | None = None
    ranges: Mapping[tuple[str, int], RangeSet] = field(default_factory=dict)
    replaces: bool = False

    @property
    def by_name(self) -> bool:
        return not self.ranges and self.since is None and self.until is None

    def __str__(self) -> str:
        if self.by_name:
            return f"backfill {self.name}"
        if self.ranges:
            return ", ".join(f"{topic}[{n}] {r}" for (topic, n), r in sorted(self.ranges.items()))
        since = "the beginning" if self.since is None else _text(self.since)
        return f"records from {since} on" + ("" if self.until is None else f", before {_text(self.until)}")


def lane_request(
    *,
    since: str | datetime | None = None,
    until: str | datetime | None = None,
    ranges: Mapping[tuple[str, int], RangeSet] | None = None,
    name: str | None = None,
    replaces: bool = False,
) -> LaneRequest:
    """Parse the request of a command or a task.

    :param since: a time; ``None`` with ``until``: from the beginning of the topics
    :param until: a time; ``None`` with ``since``: up to the live stream
    :param ranges: offsets, in place of times
    :param name: of the backfill; by default derived from the range. Alone it names an open one
    :param replaces: land again what the table has of it
    :raises SpecError: neither or both are given, a time is invalid, or the range is empty
    """
    begin, end = moment_of(since, "since"), moment_of(until, "until")
    stated = dict(ranges or {})
    if not stated and begin is None and end is None and name is not None:
        return LaneRequest(name=_named(name), replaces=replaces)
    if bool(stated) == (begin is not None or end is not None):
        raise SpecError(
            "LC7201", "name the records by `since` and `until`, or by `ranges` such as orders:0=1500-2000, not by both"
        )
    if begin and end and begin >= end:
        raise SpecError("LC7202", f"since {_text(begin)} is not before until {_text(end)}: correct the times")
    if split := [f"{t}:{n}" for (t, n), r in sorted(stated.items()) if len(r.ranges) != 1]:
        raise SpecError(
            "LC7203", f"{', '.join(split)}: a backfill takes one range per partition; start a backfill for each range"
        )
    called = _name(begin, end, stated, replaces) if name is None else _named(name)
    return LaneRequest(name=called, since=begin, until=end, ranges=stated, replaces=replaces)


def _named(name: str) -> str:
    if not _NAME.fullmatch(name) or name in (LIVE, FILLED):
        raise SpecError(
            "LC7204", f"backfill {name!r}: use up to 60 letters, digits, dots, dashes and underscores, not {LIVE!r}"
        )
    return name


def moment_of(text: str | datetime | None, what: str) -> datetime | None:
    """Parse a time.

    :param what: the option that had it
    :raises SpecError: it is invalid
    """
    if text is None or text == "":
        return None
    if isinstance(text, datetime):
        return text if text.tzinfo else text.replace(tzinfo=UTC)
    try:
        found = datetime.fromisoformat(str(text).strip())
    except ValueError:
        raise SpecError("LC7205", f"{what} {text!r} is not a time: use {_EXAMPLES}") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _name(
    since: datetime | None, until: datetime | None, ranges: Mapping[tuple[str, int], RangeSet], replaces: bool
) -> str:
    kind = "replay-" if replaces else ""
    if ranges:
        text = ",".join(f"{t}:{n}={r}" for (t, n), r in sorted(ranges.items()))
        return f"{kind}offsets-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return f"{kind}{'begin' if since is None else _short(since)}_{'live' if until is None else _short(until)}"


def _short(moment: datetime) -> str:
    utc = moment.astimezone(UTC)
    return utc.strftime("%Y%m%dT%H%M%S") + (f".{utc.microsecond:06d}" if utc.microsecond else "") + "Z"


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds" if moment.microsecond else "seconds")
