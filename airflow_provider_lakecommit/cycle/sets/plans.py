# SPDX-License-Identifier: Apache-2.0
"""The plans of all landings of a set: opened by a run, or shown by a preview.

Contract: each landing, by name, ends with its plan, with an error, or with the reason why there is nothing to plan,
which is no failure: its topics never had a record, so that its table's columns are unknown; or it is idle, if the
caller skips those.

A landing is idle, by the control topic alone, if its newest cycle is closed, its tables have everything that was
readable by then, and its topics got nothing since: so a run of hundreds of topics opens cycles only for those with new
records, and asks the catalog only for their tables. While one is idle, a cycle every :data:`IDLE` reports up to when
its tables are complete, and finds changes of the tables. In doubt a landing is not idle.

Missing tables of a set with ``missing_table: create`` and a landing without ``create`` are created from a sample of
their topics' JSON; every column is optional, since later records may lack it. An existing table is unchanged.

Failure story: that of :mod:`~airflow_provider_lakecommit.cycle.sets.shared_connections`. Topics without a record, or
with records without columns, are a :class:`TableError` of that landing alone: the next run samples again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_lakecommit.core import CycleClosed, CycleOpened, Entry, SourcePartition
from airflow_provider_lakecommit.cycle.results import Opened
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.cycle.sets.former import FormerLanding, landings_to_publish
from airflow_provider_lakecommit.cycle.sets.former_scan import former_landings
from airflow_provider_lakecommit.cycle.sets.rare_collection import rarely_collected
from airflow_provider_lakecommit.cycle.sets.shared_connections import SetConnections, for_all
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats import sample_values
from airflow_provider_lakecommit.formats.infer_values import infer
from airflow_provider_lakecommit.iceberg import Tables
from airflow_provider_lakecommit.kafka.sample import sample
from airflow_provider_lakecommit.landing import Landing, LandingSet

Ended = tuple[Landing, Opened] | str | BaseException

IDLE = timedelta(minutes=5)
"""Time after which an idle landing reports again up to when its tables are complete."""
SAMPLED = 1000
"""Records from which the columns of a missing table are inferred."""
SAMPLE_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPlans:
    """The planning results of a set's landings, by name. ``landings`` can make their tables, ``former`` have left the
    set.
    """

    landings: Mapping[str, Landing]
    opened: Mapping[str, Opened]
    failed: Mapping[str, BaseException]
    nothing: Mapping[str, str]
    former: Sequence[FormerLanding]


def plans_of(
    declared: LandingSet,
    connections: SetConnections,
    plan: Callable[[LandingSession], Opened],
    log: Callable[[str], None],
    *,
    publish: Callable[[LandingSession], Opened] | None = None,
    skip_idle: bool = False,
) -> SetPlans:
    """Plan all of them.

    :param plan: plans one landing
    :param publish: opens the cycle that publishes a former landing's reported slices; ``None``: do not publish
    :param skip_idle: make no plan for a landing with nothing to do
    """

    def step(session: LandingSession) -> tuple[Landing, Opened] | str:
        if skip_idle and (stable := connections.marks(session.landing)):
            entries = session.read_state(()).entries
            if is_idle(entries, stable, session.landing.spec_version, session.now()):
                return "nothing new"
        made = landing_ready(declared, session.landing, session.kafka, session.tables, connections)
        if made is None:
            return without_records(session.landing)
        session.landing = made
        return made, plan(session)

    former, unreadable = former_landings(declared, connections, log)
    with rarely_collected():
        ended: dict[str, Ended] = {**unreadable, **for_all(connections, connections.expansion.landings, step, log)}
    if publish is not None:
        opens = publish
        ended |= for_all(connections, landings_to_publish(former), lambda s: (s.landing, opens(s)), log)
    planned = {name: each for name, each in ended.items() if isinstance(each, tuple)}
    return SetPlans(
        landings={name: landing for name, (landing, _) in planned.items()},
        opened={name: opened for name, (_, opened) in planned.items()},
        failed={name: each for name, each in ended.items() if isinstance(each, BaseException)},
        nothing={name: each for name, each in ended.items() if isinstance(each, str)},
        former=former,
    )


def landing_ready(
    declared: LandingSet, landing: Landing, kafka: Mapping[str, Any], tables: Tables, connections: SetConnections
) -> Landing | None:
    """Return the landing as it can make its table; ``None`` if its columns are unknown, as its topics never had a
    record.

    :raises TableError: the columns of its table cannot be determined
    :raises CatalogError: the catalog is unavailable
    """
    try:
        return with_schema(declared, landing, kafka, tables)
    except TableError:
        if has_no_record(landing, connections):
            return None
        raise


def has_no_record(landing: Landing, connections: SetConnections) -> bool:
    """Return True if its topics never had a record, as far as the brokers know."""
    stable = connections.marks(landing)
    return bool(stable) and not any(stable.values())


def without_records(landing: Landing) -> str:
    """Return the message for such a landing."""
    return f"{', '.join(landing.topic_names)} never had a record: {landing.table} is created with the first one"


def is_idle(entries: Sequence[Entry], stable: Mapping[SourcePartition, int], spec_version: str, now: datetime) -> bool:
    """Return True if it has nothing to do.

    :param entries: entries of the landing's live stream, to the end of the log
    :param stable: how far its topics can be read; empty if unknown
    """
    opened = next((e for e in reversed(entries) if isinstance(e, CycleOpened)), None)
    if opened is None or opened.plan.spec_version != spec_version or opened.plan.refused or opened.plan.left:
        return False
    closed = next((e for e in entries if isinstance(e, CycleClosed) and e.commit_id == opened.commit_id), None)
    if closed is None or closed.valid_through is None or closed.valid_through < opened.plan.requested_at:
        return False
    return bool(stable) and dict(opened.plan.ends) == dict(stable) and now - closed.valid_through < IDLE


def with_schema(declared: LandingSet, landing: Landing, kafka: Mapping[str, Any], tables: Tables) -> Landing:
    """Return the landing as it can make its table, if the table is missing.

    :raises TableError: its columns cannot be determined
    :raises CatalogError: the catalog is unavailable
    """
    stated = declared.missing_table != "create" or landing.create is not None
    if stated or tables.find(landing.table) is not None:
        return landing
    found = sample_values(sample(kafka, landing.topic_names, SAMPLED, seconds=SAMPLE_SECONDS))
    columns = [c for c in infer(found) if c.type is not None]
    if not columns:
        raise TableError(
            "LC6231",
            f"there is no table {landing.table}, and {found.values} records of {', '.join(landing.topic_names)} show "
            "no columns: it is created once there are records that do; or state `create` in `defaults` or `overrides`",
        )
    return replace(landing, create={"schema": [{"name": c.name, "type": c.type} for c in columns]})
