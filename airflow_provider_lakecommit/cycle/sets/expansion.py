# SPDX-License-Identifier: Apache-2.0
"""Expand a landing set and the existing topics into landings.

Contract: pure, and the same for the same topics in any order. Each table gets one landing, of all its topics; its name
is made of the set's and the table's, so it does not change when another topic joins. Kafka's internal topics and the
set's control topic are ignored. Topics without a landing are named with the reason: nothing is dropped silently.

Failure story: two topics that share a table by accident (``a.b`` and ``a-b`` are both ``a_b``; case-insensitive engines
see one table in two) are an error of these topics; all others have their landing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import TOPIC, Landing, LandingSet, fields_of, filled_template, merged, nearest

INTERNAL = "__"
"""Prefixes of Kafka's own topics."""
NAMED = 5
"""Most topics in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Topics without a landing; ``table`` is the one that they would go to."""

    topics: tuple[str, ...]
    why: str
    table: str | None = None

    def __str__(self) -> str:
        return self.why


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """The landings of a set by their tables, and the topics without one. ``ignored`` are topics that the set ignores
    explicitly, ``known`` are all existing topics, if the set has a pattern.
    """

    landings: tuple[Landing, ...]
    troubles: tuple[Trouble, ...] = ()
    ignored: tuple[str, ...] = ()
    known: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def left_out(self) -> dict[str, object]:
        """Return the topics without a landing, as plain values."""
        without = [{"topics": list(t.topics), "table": t.table, "why": t.why} for t in self.troubles]
        return {"without_landing": without, "ignored": list(self.ignored)}

    @property
    def topics(self) -> tuple[str, ...]:
        """Return the topics of all landings."""
        return tuple(dict.fromkeys(t for landing in self.landings for t in landing.topic_names))


TableOfTopic = tuple[str, bool]
"""The table of one topic, and True if the topic may share it with others."""


def topics_of(declared: LandingSet, known: Collection[str]) -> tuple[str, ...]:
    """Return the topics of a set: those it names, existing or not, and the matching known ones."""
    pattern = declared.topics_pattern
    found = [t for t in known if pattern is not None and re.fullmatch(pattern, t)]
    names = sorted({*declared.topic_names, *found})
    return tuple(
        t
        for t in names
        if not t.startswith(INTERNAL)
        and t != declared.control_topic_name
        and not any(re.fullmatch(each, t) for each in declared.exclude)
    )


def matches_nothing(declared: LandingSet, known: Collection[str]) -> str:
    """Return the message for a set without topics, with topics that its pattern nearly matches."""
    pattern = declared.topics_pattern or ""
    matching = [t for t in known if re.fullmatch(pattern, t)]
    if matching:
        named = ", ".join(matching[:NAMED]) + (", …" if len(matching) > NAMED else "")
        return (
            f"landing set {declared.name!r}: {len(matching)} topics match topics_pattern {pattern!r} ({named}), but "
            "all of them are excluded by `exclude`, internal to Kafka, or the control topic"
        )
    plain = re.sub(r"\\[A-Za-z]|\(\?P?<?\w*>?|[^A-Za-z0-9._-]", "", pattern)
    near = nearest(plain, [t for t in known if not t.startswith(INTERNAL)])
    named = f"; similar names are {', '.join(near)}" if near else ""
    return (
        f"landing set {declared.name!r}: no topic matches topics_pattern {pattern!r} (with its whole name), of the "
        f"{len(known)} topics that this principal may see{named}"
    )


def expand(declared: LandingSet, known: Collection[str]) -> Expansion:
    """Return the landings of a set.

    :param known: all existing topics
    """
    by_table, unmatched = dict[str, dict[str, TableOfTopic]](), list[str]()
    for topic in topics_of(declared, known):
        if (found := _table_of(declared, topic)) is None:
            unmatched.append(topic)
        else:
            # A case-insensitive engine compares names so.
            by_table.setdefault(found[0].casefold(), {})[topic] = found
    made = [_trouble(some) or _landing(declared, some) for some in by_table.values()]
    landings, troubles = [m for m in made if isinstance(m, Landing)], [m for m in made if isinstance(m, Trouble)]
    dead = {str(each.dead_letter_table).casefold(): each for each in landings if each.dead_letter_table}
    both = [each for each in landings if each.table.casefold() in dead]
    for each in both:
        why = (
            f"topics {', '.join(each.topic_names)} go to {each.table}, the dead-letter table of "
            f"{dead[each.table.casefold()].table}: give them their own rule, or change the template "
            "`dead_letter_table`"
        )
        troubles.append(Trouble(topics=each.topic_names, table=each.table, why=why))
    failing = unmatched if declared.unmatched == "fail" else []
    troubles += [Trouble(topics=(t,), why=f"topic {t} matches no rule, and the set has no `table`") for t in failing]
    ignored = () if failing else tuple(unmatched)
    return Expansion(
        landings=tuple(sorted((m for m in landings if m not in both), key=lambda each: each.table)),
        troubles=tuple(troubles),
        ignored=ignored,
        known=frozenset(known if declared.topics_pattern is not None else ()),
    )


def landing_for(declared: LandingSet, *topics: str) -> Landing:
    """Return the landing of a set for these topics, for a DAG that follows its asset, a guard or an operator. Nothing
    is contacted: if several topics share its table, name all of them.

    :raises SpecError: the set has none for them, or more than one
    """
    found = expand(declared, topics)
    mine = [each for each in found.landings if not set(topics).isdisjoint(each.topic_names)]
    if len(mine) == 1 and set(topics) <= set(mine[0].topic_names):
        return mine[0]
    troubles = [t.why for t in found.troubles if not set(topics).isdisjoint(t.topics)]
    where = "; ".join([*troubles, *(f"{', '.join(each.topic_names)} go to {each.table}" for each in mine)])
    why = where or "the set has none of them"
    raise SpecError("LC6230", f"landing set {declared.name!r}: topics {', '.join(topics)} are not one landing: {why}")


def _table_of(declared: LandingSet, topic: str) -> TableOfTopic | None:
    for rule in declared.rules:
        if (found := re.fullmatch(rule["topics"], topic)) is not None:
            template, merged = rule["table"], bool(rule.get("merge")) or not fields_of(rule["table"])
            return filled_template(template, {**found.groupdict(), TOPIC: topic}), merged
    if declared.table is None:
        return None
    pattern = declared.topics_pattern
    found = re.fullmatch(pattern, topic) if pattern is not None else None
    groups = re.compile(pattern).groupindex if pattern is not None else {}
    values = dict.fromkeys(groups) if found is None else found.groupdict()
    merged = not fields_of(declared.table)
    return filled_template(declared.table, {**values, TOPIC: topic}), merged


def _trouble(by_topic: Mapping[str, TableOfTopic]) -> Trouble | None:
    tables, topics = sorted({table for table, _ in by_topic.values()}), tuple(by_topic)
    if len(tables) == 1 and (len(by_topic) == 1 or all(merged for _, merged in by_topic.values())):
        return None
    where = tables[0] if len(tables) == 1 else f"{' and '.join(tables)}, which many engines treat as one"
    why = (
        f"topics {', '.join(topics)} share table {where}: give one of them its own rule, `exclude` it, or set "
        "`merge: true` in a rule for all of them"
    )
    return Trouble(topics=topics, table=tables[0], why=why)


def _landing(declared: LandingSet, by_topic: Mapping[str, TableOfTopic]) -> Landing | Trouble:
    table, topics = next(iter(by_topic.values()))[0], tuple(by_topic)
    try:
        return Landing.from_dict(
            {
                **options_of(declared, table),
                "name": declared.landing_name(table),
                "topics": topics[0] if len(topics) == 1 else topics,
                "table": table,
            }
        )
    except SpecError as e:
        return Trouble(topics=topics, table=table, why=f"topics {', '.join(topics)}: {e}")


def options_of(declared: LandingSet, table: str) -> dict[str, Any]:
    """Return the options of a table's landing, without its names."""
    options = dict(declared.defaults)
    for override in declared.overrides:
        if re.fullmatch(override["table"], table):
            options = merged(options, {k: v for k, v in override.items() if k != "table"})
    if declared.missing_table != "create":
        options.pop("create", None)
    if declared.dead_letter_table is not None:
        options["dead_letter_table"] = declared.dead_letter_table.format_map({"table": table})
    return options
