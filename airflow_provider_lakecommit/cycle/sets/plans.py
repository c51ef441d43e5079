# SPDX-License-Identifier: Apache-2.0
"""The plans of all landings of a set: opened by a run, or shown by a preview.

Contract: each landing, by name, ends with its plan, with an error, or with the reason why there is nothing to plan,
which is no failure: its topics never had a record, so that its table's columns are unknown; or it is idle, if the
caller skips those.

Failure story: that of :mod:`~airflow_provider_lakecommit.cycle.sets.steps`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_lakecommit.cycle.results import Opened
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.cycle.sets.connections import SetConnections
from airflow_provider_lakecommit.cycle.sets.expansion import Expansion
from airflow_provider_lakecommit.cycle.sets.former_look import Formers, former_landings
from airflow_provider_lakecommit.cycle.sets.garbage import rarely_collected
from airflow_provider_lakecommit.cycle.sets.idle import is_idle
from airflow_provider_lakecommit.cycle.sets.schemas import with_schema
from airflow_provider_lakecommit.cycle.sets.steps import for_all
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg import Tables
from airflow_provider_lakecommit.landing import Landing, LandingSet

Ended = tuple[Landing, Opened] | str | BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPlans:
    """The planning results of a set's landings, by name. ``landings`` can make their tables, ``former`` have left the
    set.
    """

    landings: Mapping[str, Landing]
    opened: Mapping[str, Opened]
    failed: Mapping[str, BaseException]
    nothing: Mapping[str, str]
    former: Formers


def plans_of(
    declared: LandingSet,
    expansion: Expansion,
    connections: SetConnections,
    kafka: Mapping[str, Any],
    tables: Tables,
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
        if skip_idle and _is_idle(session, connections):
            return "nothing new"
        made = landing_ready(declared, session.landing, kafka, tables, connections)
        if made is None:
            return without_records(session.landing)
        session.landing = made
        return made, plan(session)

    former = former_landings(declared, connections, log)
    with rarely_collected():
        ended: dict[str, Ended] = {**former.failed, **for_all(connections, expansion.landings, step, log)}
    if publish is not None:
        opens = publish
        ended |= for_all(connections, former.publishing, lambda s: (s.landing, opens(s)), log)
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


def _is_idle(session: LandingSession, connections: SetConnections) -> bool:
    stable = connections.marks(session.landing)
    if not stable:
        return False
    entries = session.read_state(()).entries
    return is_idle(entries, stable, session.landing.spec_version, session.now())
