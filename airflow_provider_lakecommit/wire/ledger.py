# SPDX-License-Identifier: Apache-2.0
"""The ledger of a table as one text in a snapshot summary: the sections of all landings and lanes that write to the
table.

Contract: readable JSON while small, compressed above 8 kB, refused above 64 kB (a summary is part of every metadata
file). ``topic`` of the control position is kept for people; ids decide. Later versions may add keys; readers take the
version before their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from airflow_provider_lakecommit.core.model import ControlPosition, LedgerSection
from airflow_provider_lakecommit.exceptions import WireError
from airflow_provider_lakecommit.wire.coverage import (
    coverage_from_json,
    coverage_to_json,
    offsets_from_json,
    offsets_to_json,
)
from airflow_provider_lakecommit.wire.envelope import DAMAGE, count, pack, text, unpack

__all__ = ["LEDGER_LIMIT", "decode_ledger", "encode_ledger"]

LEDGER_LIMIT = 64_000


def encode_ledger(sections: Sequence[LedgerSection]) -> str:
    """:raises WireError: above :data:`LEDGER_LIMIT`"""
    return pack(
        {"sections": [_section_to_json(s) for s in sorted(sections, key=lambda s: (s.landing, s.lane))]},
        what="the ledger of the table",
        limit=LEDGER_LIMIT,
        remedy="land fewer topic partitions or fewer landings into one table; `lakecommit ledger prune SPEC` takes out "
        "what is gone; nothing was committed",
    )


def decode_ledger(packed: str) -> tuple[LedgerSection, ...]:
    """:raises WireError: when the text is damaged or of a later version"""
    values = unpack(packed, what="the ledger of the table")
    try:
        sections = tuple(_section_from_json(s) for s in values["sections"])
        if len({(s.landing, s.lane) for s in sections}) < len(sections):
            raise ValueError("a lane has two sections")
        return sections
    except DAMAGE as e:
        raise WireError(f"the ledger of the table is damaged: {type(e).__name__} {e}") from e


def _section_to_json(s: LedgerSection) -> dict[str, Any]:
    c = s.control
    return {
        "landing": s.landing,
        "lane": s.lane,
        "cluster": s.cluster_id,
        "epoch": str(s.epoch),
        "spec": s.spec_version,
        "starts": offsets_to_json(s.starts),
        "covered": coverage_to_json(s.covered),
        "record_bytes": s.record_bytes,
        "control": {
            "cluster": c.cluster_id,
            "topic": c.topic,
            "topic_id": c.topic_id,
            "partition": c.partition,
            "read_from": c.read_from,
            "low": c.low,
        },
    }


def _section_from_json(s: dict[str, Any]) -> LedgerSection:
    c = s["control"]
    return LedgerSection(
        landing=text(s["landing"]),
        lane=text(s["lane"]),
        cluster_id=text(s["cluster"]),
        epoch=UUID(s["epoch"]),
        spec_version=text(s["spec"]),
        starts=offsets_from_json(s["starts"]),
        covered=coverage_from_json(s["covered"]),
        record_bytes=count(s["record_bytes"]),
        control=ControlPosition(
            cluster_id=text(c["cluster"]),
            topic=text(c["topic"]),
            topic_id=text(c["topic_id"]),
            partition=count(c["partition"]),
            read_from=count(c["read_from"]),
            low=None if c["low"] is None else count(c["low"]),
        ),
    )
