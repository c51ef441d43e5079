# SPDX-License-Identifier: Apache-2.0
"""Which control topics the page reads, where it keeps their history, and what it reads of tables: what options of
`[lakecommit]` say.

Contract: each topic is `CONNECTION/TOPIC`, or `CONNECTION` for the deployment's own control topic there, with commas
between them. Nothing said means `kafka_default` and that topic. `page_history` is a folder, by default one in
Airflow's home; `none` keeps no history.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.page.landings import PageTopic

__all__ = ["DEFAULT_CONNECTION", "TableLooks", "history_folder", "page_topics", "table_looks"]

DEFAULT_CONNECTION = "kafka_default"
FOLDER = "lakecommit-page"
NO_HISTORY = "none"


class TableLooks(StrEnum):
    """What of landings' tables is read for the page."""

    NONE = "none"
    FILES = "files"
    SAMPLES = "samples"
    """Also what dead letters hold."""


def page_topics(stated: str, control_topic: str) -> tuple[PageTopic, ...]:
    """The topics, each once, in the order in which they are stated.

    :param control_topic: of the deployment
    :raises SpecError: a connection or a topic has no name
    """
    found: dict[PageTopic, None] = {}
    for each in (part.strip() for part in stated.split(",")):
        connection, slash, topic = each.partition("/")
        if each and not (connection.strip() and (topic.strip() or not slash)):
            raise SpecError(f"[lakecommit] page_topics: {each!r} is not CONNECTION/TOPIC, as in kafka_default/control")
        if each:
            found[PageTopic(connection.strip(), topic.strip() or control_topic)] = None
    return tuple(found) or (PageTopic(DEFAULT_CONNECTION, control_topic),)


def history_folder(stated: str, home: str) -> Path | None:
    """Where the history is kept, if it is.

    :param home: Airflow's own folder, in which a relative one is meant
    """
    wanted = stated.strip()
    return None if wanted.casefold() == NO_HISTORY else Path(home, Path(wanted or FOLDER).expanduser())


def table_looks(stated: str) -> TableLooks:
    """What is read of tables.

    :raises SpecError: it is none of those
    """
    try:
        return TableLooks(stated.strip().casefold())
    except ValueError:
        allowed = ", ".join(TableLooks)
        raise SpecError(f"[lakecommit] page_tables: {stated!r} is none of {allowed}") from None
