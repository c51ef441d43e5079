# SPDX-License-Identifier: Apache-2.0
"""The configuration of an Iceberg sink of Kafka Connect: where the sink commits, and whether a landing can continue for
it.

Contract: pure. What the configuration leaves out has the connector's defaults. If rows would differ from the sink's, or
be missing, that is an objection; if something is only worth knowing, it is a note. Unknown settings are never ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from airflow_provider_lakecommit.core import source_group
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import Landing

CONTROL_TOPIC = "control-iceberg"
INTERVAL_MS = "300000"
_DYNAMIC = "iceberg.tables.dynamic-enabled"
_ROUTE = "iceberg.tables.route-field"


def commits_of_sink(connector: str, config: Mapping[str, str]) -> tuple[str, str, float]:
    """Return the control topic and the group of a connector's commits, and the seconds between them.

    :raises SpecError: it is no Iceberg sink
    """
    if "iceberg" not in config.get("connector.class", "").lower():
        raise SpecError(
            "LC7522",
            f"connector {connector!r} is {config.get('connector.class', 'of no class')}, no Iceberg sink: name its "
            "control_topic and control_group_id if it uses the same protocol",
        )
    topic = config.get("iceberg.control.topic", CONTROL_TOPIC)
    group = config.get("iceberg.connect.group-id") or source_group(connector)
    return topic, group, int(config.get("iceberg.control.commit.interval-ms", INTERVAL_MS)) / 1000


def reasons_against(
    landing: Landing, connector: str, config: Mapping[str, str], topics: Collection[str]
) -> Iterator[str]:
    """Yield the objections to this landing continuing for this connector.

    :param topics: those in which the connector has read
    """
    yield from _of_tables(landing, config)
    default = config.get("iceberg.tables.default-commit-branch") or "main"
    branch = config.get(f"iceberg.table.{landing.table}.commit-branch") or default
    if branch != landing.branch:
        yield f"it commits to branch {branch}, but landing {landing.name} to branch {landing.branch}"
    own = config.get("consumer.override.group.id") or source_group(connector)
    if own != source_group(connector):
        yield f"its tasks read in consumer group {own}, not in the default one"
    yield from _of_topics(landing, config, topics)


def _of_tables(landing: Landing, config: Mapping[str, str]) -> Iterator[str]:
    tables = _names(config.get("iceberg.tables", ""))
    if _on(config.get(_DYNAMIC)):
        field = config.get(_ROUTE, "?")
        yield (
            f"it names a table by the value of field {field} ({_DYNAMIC}): a landing fills one table, so records "
            f"that the connector has written elsewhere would go to {landing.table}"
        )
    elif route := config.get(_ROUTE):
        yield (
            f"it skips or redirects records by the value of field {route} ({_ROUTE}), but landing {landing.name} lands "
            f"all of them in {landing.table}"
        )
    elif len(landing.data_tables) > 1:
        yield (
            f"landing {landing.name} has several tables of rows (`route`), but the connector has one: adopt it with "
            f"a landing of {landing.table} alone, and add `route` in a later spec"
        )
    elif tables != [landing.table]:
        yield (
            f"it fills {', '.join(tables) or 'no table by name'}, landing {landing.name} fills {landing.table}: only a "
            "connector with that single table can be adopted, because its offsets apply to all its tables"
        )


def _of_topics(landing: Landing, config: Mapping[str, str], topics: Collection[str]) -> Iterator[str]:
    # A pattern matches any topic: only those in which it has read count.
    its = {*_names(config.get("topics", "")), *topics}
    ours = set(landing.topic_names)
    left = [f"it reads {', '.join(sorted(its - ours))} too, which no landing would read"] if its - ours else []
    left += [f"it does not read {', '.join(sorted(ours - its))}"] if ours - its else []
    if left:
        yield f"{'; '.join(left)}: landing {landing.name} must name the same topics"


def notes_on(landing: Landing, config: Mapping[str, str]) -> Iterator[str]:
    """Yield notes on what made its rows different from the landing's."""
    if transforms := _names(config.get("transforms", "")):
        yield f"its transforms ({', '.join(transforms)}) no longer apply: the landing lands values as sent"
    converter = config.get("value.converter", "")
    if "json" not in converter.lower() and landing.decoding.name.startswith("json"):
        yield f"it decodes values by {converter or 'the default converter of its worker'}, the landing as JSON"
    if _on(config.get("value.converter.schemas.enable")) and landing.decoding.name.startswith("json"):
        yield "its values are envelopes with `schema` and `payload`; the landing takes the whole value as row"
    if config.get("errors.tolerance", "none").lower() == "all":
        yield "records that it could not convert were skipped (errors.tolerance): no table has them"
    if _on(config.get("iceberg.tables.evolve-schema-enabled")):
        yield "it adds columns by itself; the landing ignores or rejects fields that the table lacks"


def reads_earliest(config: Mapping[str, str]) -> bool:
    """Return True if it begins with the first record of a partition, which is Connect's default."""
    return config.get("consumer.override.auto.offset.reset", "earliest") == "earliest"


def _names(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())]


def _on(value: str | None) -> bool:
    return (value or "").strip().lower() == "true"
