# SPDX-License-Identifier: Apache-2.0
"""Which control topics the page reads: the option `[lakecommit] page_topics`.

Contract: each topic is `CONNECTION/TOPIC`, or `CONNECTION` for the deployment's own control topic there, with commas
between them. An empty option means `kafka_default` and that topic.
"""

from __future__ import annotations

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.page.landings import PageTopic

DEFAULT_CONNECTION = "kafka_default"


def page_topics(stated: str, control_topic: str) -> tuple[PageTopic, ...]:
    """Return the topics, each once, in the stated order.

    :param control_topic: of the deployment
    :raises SpecError: a connection or a topic has no name
    """
    found: dict[PageTopic, None] = {}
    for each in (part.strip() for part in stated.split(",")):
        connection, slash, topic = each.partition("/")
        if each and not (connection.strip() and (topic.strip() or not slash)):
            raise SpecError(
                "LC8701", f"[lakecommit] page_topics: {each!r} is not CONNECTION/TOPIC, e.g. kafka_default/control"
            )
        if each:
            found[PageTopic(connection.strip(), topic.strip() or control_topic)] = None
    return tuple(found) or (PageTopic(DEFAULT_CONNECTION, control_topic),)
