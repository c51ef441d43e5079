# SPDX-License-Identifier: Apache-2.0
"""Distribute the partition groups of many landings to a few tasks, by the amount to read.

Contract: pure, and the same for the same groups, so that a retry distributes alike. Every group is in one bundle; no
bundle is empty. A bundle goes through XCom as plain values, the landing with each group, as only the plan knows a new
topic.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_lakecommit.cycle.results import GroupTicket
from airflow_provider_lakecommit.landing import Landing

BASE_RECORDS = 2_000
"""The cost of beginning a group, in records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundledGroup:
    """One group of one landing."""

    landing: Landing
    ticket: GroupTicket

    def to_dict(self) -> dict[str, Any]:
        return {"landing": self.landing.to_flat(), "group": self.ticket.to_dict()}

    @classmethod
    def from_dict(cls, v: Mapping[str, Any]) -> BundledGroup:
        return cls(landing=Landing.from_flat(v["landing"]), ticket=GroupTicket.from_dict(v["group"]))


def dealt(groups: Sequence[BundledGroup], tasks: int) -> list[list[BundledGroup]]:
    """Return at most so many bundles; each group goes to the smallest one by then, the largest group first."""
    needed = min(tasks, len(groups))
    bundles: list[list[BundledGroup]] = [[] for _ in range(needed)]
    loads = [(0, number) for number in range(needed)]
    for each in sorted(groups, key=lambda g: (-g.ticket.records, g.landing.name, g.ticket.group)):
        load, number = heapq.heappop(loads)
        bundles[number].append(each)
        heapq.heappush(loads, (load + each.ticket.records + BASE_RECORDS, number))
    return bundles


def label_of(bundle: Sequence[BundledGroup]) -> str:
    """Return a bundle's name for display."""
    names = sorted({each.landing.name for each in bundle})
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{sum(each.ticket.records for each in bundle)} records of {names[0]}{more}"
