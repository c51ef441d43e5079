# SPDX-License-Identifier: Apache-2.0
"""The newest control records of other landings, by the names of these.

Contract: reads only, and at most :data:`RECENT` records of each partition. A record that cannot be read belongs to no
landing and is left out.

Failure story: a landing whose newest record is older than these is not found.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

from airflow_provider_lakecommit.control.control_log import BEYOND, ControlRecord, ControlTopicInfo, LogReader
from airflow_provider_lakecommit.control.events import head
from airflow_provider_lakecommit.control.headers import DAMAGED_BATCH
from airflow_provider_lakecommit.core import group_id
from airflow_provider_lakecommit.exceptions import WireError

RECENT = 2_000
"""Records of a partition that are read for landings that nobody names any more."""

Recent = Mapping[str, tuple[ControlRecord, ...]]
"""Records by the name of their landing, in the order of the log."""


class _Topic(LogReader, Protocol):
    def describe(self) -> ControlTopicInfo: ...


def recent_records(control: _Topic, prefix: str = "") -> dict[str, tuple[ControlRecord, ...]]:
    """Return the newest records of the landings whose names begin with the prefix.

    :raises ControlTopicError: the topic cannot be read
    """
    found: dict[str, list[ControlRecord]] = {}
    for partition in range(control.describe().partitions):
        borders = control.read(partition, BEYOND)
        for record in control.read(partition, max(borders.begin, borders.end - RECENT)).records:
            name = landing_of(group_of(record))
            if name is not None and name.startswith(prefix):
                found.setdefault(name, []).append(record)
    return {name: tuple(records) for name, records in found.items()}


def group_of(record: ControlRecord) -> str | None:
    """Return the control group of a record, ``None`` where it cannot be read."""
    if record.value is not None and not any(name == DAMAGED_BATCH for name, _ in record.headers):
        with suppress(WireError):
            return head(record.value).group_id
    return None


def landing_of(group: str | None) -> str | None:
    """Return the landing of a control group, ``None`` if it is not one of a landing."""
    prefix = group_id("")
    return group.removeprefix(prefix) if group is not None and group.startswith(prefix) else None
