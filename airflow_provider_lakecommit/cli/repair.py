# SPDX-License-Identifier: Apache-2.0
"""`lakecommit ledger show|init` and `lakecommit unblock`: the commands that errors name, for a person who has decided.

Contract: nothing here decides; what is asked for is done as a cycle of its own, which the tables and the control topic
record. `ledger show` only reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from airflow_provider_lakecommit.cli.output import Exit, Output, offsets
from airflow_provider_lakecommit.committer.ledger import LedgerState, read_ledger
from airflow_provider_lakecommit.core.model import Budget, LedgerSection
from airflow_provider_lakecommit.cycle.rim import Rim
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.hooks.table import Tables
from airflow_provider_lakecommit.landing import LandingSpec

__all__ = ["ledger_init", "ledger_show", "parse_partition", "unblock"]


def ledger_show(spec: LandingSpec, output: Output) -> int:
    """The ledger of each table, of all landings and lanes in it.

    :raises CatalogError: the catalog is away
    :raises WireError: a ledger is damaged
    """
    tables = Tables(spec.catalog)
    for name in spec.landing.tables:
        table = tables.find(name)
        state = None if table is None else read_ledger(table.metadata, spec.landing.branch)
        if output.as_json:
            output.result(_to_dict(name, state))
        else:
            output.lines(_text(name, state))
    return Exit.DONE


def _to_dict(name: str, state: LedgerState | None) -> dict[str, Any]:
    if state is None:
        return {"table": name, "condition": "missing"}
    return {
        "table": name,
        "uuid": str(state.table_uuid),
        "branch": state.branch,
        "condition": str(state.condition),
        "reason": state.reason,
        "snapshot_id": state.snapshot_id,
        "head_id": state.head_id,
        "tag_id": state.tag_id,
        "foreign_since": state.foreign_since,
        "sections": [_section_to_dict(s) for s in state.sections],
    }


def _section_to_dict(s: LedgerSection) -> dict[str, Any]:
    return {
        "landing": s.landing,
        "lane": s.lane,
        "cluster_id": s.cluster_id,
        "epoch": str(s.epoch),
        "spec_version": s.spec_version,
        "topic_ids": {p.topic: p.topic_id for p in sorted(s.starts)},
        "starts": {str(p): start for p, start in sorted(s.starts.items())},
        "covered": offsets(s.covered),
        "control": {
            "cluster_id": s.control.cluster_id,
            "topic": s.control.topic,
            "topic_id": s.control.topic_id,
            "partition": s.control.partition,
            "read_from": s.control.read_from,
            "low": s.control.low,
        },
    }


def _text(name: str, state: LedgerState | None) -> Iterable[str]:
    if state is None:
        yield f"{name}: there is no such table"
        return
    told = f" ({state.reason})" if state.reason else ""
    yield f"{name}: ledger {state.condition}{told}, in snapshot {state.snapshot_id}, head {state.head_id}"
    for s in state.sections:
        yield f"  landing {s.landing}, lane {s.lane}, spec {s.spec_version}, epoch {s.epoch}"
        for p in sorted({*s.starts, *s.covered.parts}):
            yield f"    {p}: from {s.starts.get(p, 0)}, landed {s.covered[p]}, next {s.end(p)}"
        c = s.control
        yield f"    control {c.topic}[{c.partition}] from offset {c.read_from}, lowest needed {c.low}"


def ledger_init(spec: LandingSpec, output: Output, *, start: str) -> int:
    """Begin the ledger where *start* says: ``earliest``, ``latest`` or ``topic:partition=offset,…``.

    :raises SpecError: *start* is none of these
    :raises LakecommitError: a part that is needed is away, or refuses
    """
    from airflow_provider_lakecommit.cycle.repair import ledger_init as begin

    places = start if start in ("earliest", "latest") else _places(start)
    with Rim.connect(spec.landing, spec.kafka, spec.catalog, say=output.say) as rim:
        _done(output, begin(rim, places))
    return Exit.DONE


def _places(text: str) -> dict[tuple[str, int], int]:
    places: dict[tuple[str, int], int] = {}
    for part in text.split(","):
        partition, _, offset = part.strip().partition("=")
        if not offset.isdecimal():
            raise SpecError(f"--from {text!r}: say earliest, latest or TOPIC:PARTITION=OFFSET,… as in orders:0=1500")
        places[parse_partition(partition)] = int(offset)
    return places


def parse_partition(text: str) -> tuple[str, int]:
    """``topic:3``, and ``topic[3]`` as messages have it.

    :raises SpecError: it is neither
    """
    topic, _, number = text.removesuffix("]").replace("[", ":").rpartition(":")
    if not topic or not number.isdecimal():
        raise SpecError(f"{text!r} is not TOPIC:PARTITION, as in orders:3")
    return topic, int(number)


def unblock(
    spec: LandingSpec,
    output: Output,
    *,
    raise_to: tuple[int, float] | None,
    skip: bool,
    partitions: Sequence[str] | None,
) -> int:
    """Say how to go on with blocked ranges: read them under another budget, or skip them.

    :raises LakecommitError: a part that is needed is away, or nothing is blocked there
    """
    from airflow_provider_lakecommit.cycle.repair import unblock as release

    budget = None if raise_to is None else Budget(max_records=raise_to[0], max_ratio=raise_to[1])
    chosen = None if partitions is None else {parse_partition(text) for text in partitions}
    with Rim.connect(spec.landing, spec.kafka, spec.catalog, say=output.say) as rim:
        _done(output, release(rim, chosen, raise_to=budget, skip=skip))
    return Exit.DONE


def _done(output: Output, told: dict[str, Any]) -> None:
    """For people, the progress has said it all."""
    if output.as_json:
        output.result(told)
