# SPDX-License-Identifier: Apache-2.0
"""The declaration of many pipelines: topics by name or pattern, each into its table by a template or by rules.

Contract: a :class:`LandingSet` is complete and valid once constructed and touches no network, like a
:class:`~airflow_provider_lakecommit.landing.Landing`. Given the existing topics it becomes ordinary landings
(:mod:`~airflow_provider_lakecommit.cycle.sets.expansion`), one per table, named after the set and the table. A landing
keeps its name however many topics go to its table; ledger, windows, commits and every command work per table.

A template has fields in braces: ``{topic}``, and the named groups of the pattern that the topic matched. In their
values every character other than a letter, digit or underscore becomes an underscore: dots would be namespaces, and few
engines take an unquoted hyphen. Case is kept. An unknown field is reported before any topic is known.

Failure story: as for a landing, all mistakes are one :class:`SpecError`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Formatter
from typing import Any

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing.checks import CHECKS, unknown_keys
from airflow_provider_lakecommit.landing.connected import read_connected
from airflow_provider_lakecommit.landing.landing import Landing, LandingSpec
from airflow_provider_lakecommit.landing.names import meant, mistaken
from airflow_provider_lakecommit.landing.options import SECTION_KEYS, SECTIONS, TOP, label, merged, to_flat
from airflow_provider_lakecommit.landing.sections import keep_as_tuples
from airflow_provider_lakecommit.landing.yaml_file import read_yaml

TOPIC = "topic"
_OTHER = re.compile(r"[^A-Za-z0-9_]")
OWN = ("name", "topics", "table", "dead_letter_table")
"""Fields of a landing that the set fills in."""
SHARED = tuple(f"connections.{key}" for key in ("kafka", "registry", "iceberg", "control_topic"))
"""Fields that all landings of a set share."""
UNMATCHED = ("fail", "ignore")
MISSING_TABLE = ("fail", "create")
_RULE = ("topics", "table", "merge")
_TABLE = "table"


@dataclass(frozen=True, kw_only=True)
class LandingSet:
    """Many landings, one for each table.

    :param name: name of the set; its landings are called ``<name>.<table>``
    :param topics: names of topics
    :param topics_pattern: or a regular expression for a topic's whole name; with both, either may match
    :param exclude: regular expressions; a topic whose whole name matches one is excluded
    :param table: template of a topic's table, as ``lake.{topic}``; the named groups of ``topics_pattern`` are fields
        too
    :param rules: exceptions to ``table``: mappings with ``topics`` (a regular expression), ``table`` (a template, with
        the groups of that expression) and ``merge`` (may several topics share a table? always allowed if the template
        has no fields); the first match counts, and a topic without one gets ``table``
    :param dead_letter_table: template of each table's own dead-letter table, as ``{table}_dead``
    :param unmatched: a topic without a table, by ``rules`` without ``table``: ``fail``, or ``ignore`` it by name
    :param missing_table: a missing table: ``fail`` (that landing alone), or ``create`` it, by ``create`` of
        ``defaults`` or ``overrides``, otherwise by a sample of the topic
    :param defaults: options of all landings
    :param overrides: mappings of ``table`` (a regular expression on the table's whole name) and options of a landing;
        the last match counts. Sections are merged key by key
    :raises SpecError: listing all mistakes
    """

    name: str
    topics: str | Sequence[str] = ()
    topics_pattern: str | None = None
    exclude: str | Sequence[str] = ()
    table: str | None = None
    rules: Sequence[Mapping[str, Any]] = ()
    dead_letter_table: str | None = None
    unmatched: str = "fail"
    missing_table: str = "fail"
    defaults: Mapping[str, Any] = field(default_factory=dict)
    overrides: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        for key in ("topics", "exclude"):
            if isinstance(value := getattr(self, key), str):
                object.__setattr__(self, key, (value,))
        keep_as_tuples(self, "topics", "exclude", "rules", "overrides")
        if wrong := list(_wrong(self)):
            raise mistaken(f"landing set {self.name!r}", wrong)

    @property
    def topic_names(self) -> tuple[str, ...]:
        return tuple(self.topics)

    @property
    def control_topic_name(self) -> str:
        return self.with_defaults(self.name).control_topic_name

    def landing_name(self, table: str) -> str:
        return f"{self.name}.{table}"

    def with_defaults(self, name: str) -> Landing:
        """Return a landing with the options that all share; its topics and table are placeholders."""
        return Landing.from_dict({**self.defaults, "name": name, "topics": "any", "table": "any.table"})

    def completed_by(self, complete: Callable[[Landing], Landing]) -> LandingSet:
        """Return the set, completed by the deployment's defaults.

        :param complete: completes one landing
        """
        one = complete(self.with_defaults(self.name)).connections
        shared = {"control_topic": one.control_topic, "location_providers": one.location_providers}
        return dataclasses.replace(self, defaults=merged(self.defaults, {"connections": shared}))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LandingSet:
        """Parse plain values, as from YAML.

        :raises SpecError: unknown keys (with the nearest known one), a missing name, wrong values
        """
        known = _kinds()
        wrong = unknown_keys(values, known, lambda key: _hint(key, known)) + [
            f"missing key {key!r} [LC1220]" for key in ("name",) if key not in values
        ]
        if wrong:
            raise mistaken(f"landing set {values.get('name')!r}", wrong)
        return cls(**values)

    @classmethod
    def from_yaml(cls, path: str | Path) -> LandingSet:
        """Read the set of a YAML spec; the sections in place of connections are optional."""
        return load_set(path, connections=False).landing_set


@dataclass(frozen=True, kw_only=True)
class LandingSetSpec:
    """A YAML spec of a set, with three sections in place of Airflow connections. ``variables`` are the secret
    environment variables that it names.
    """

    landing_set: LandingSet
    kafka: Mapping[str, Any] = field(repr=False)
    catalog: Mapping[str, Any] = field(repr=False)
    spark: Mapping[str, Any] = field(repr=False)
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)

    def of(self, landing: Landing) -> LandingSpec:
        """Return one landing of the set, with the set's sections."""
        return LandingSpec(
            landing=landing, kafka=self.kafka, catalog=self.catalog, spark=self.spark, variables=self.variables
        )


def declares_set(path: str | Path) -> bool:
    """Return True if a YAML spec declares a set: by a key that only sets have, or a field in ``table``.

    :raises SpecError: the file is unreadable
    """
    values = read_yaml(path)
    return bool(_kinds().keys() - {*OWN} & values.keys()) or "{" in str(values.get(_TABLE, "")).replace("${", "")


def load_set(path: str | Path, *, connections: bool = True, elsewhere: Collection[str] = ()) -> LandingSetSpec:
    """Read the YAML spec of a set, like :func:`~airflow_provider_lakecommit.landing.load_spec` for a landing.

    :raises SpecError: unreadable file, no mapping, or anything :class:`LandingSet` refuses
    """
    kinds = _kinds()
    found, taken = read_connected(
        path, kinds, LandingSet.from_dict, _hint, connections=connections, elsewhere=elsewhere
    )
    return LandingSetSpec(landing_set=found, **taken)


def _kinds() -> dict[str, str]:
    return {f.name: str(f.type) for f in dataclasses.fields(LandingSet)}


def _hint(key: str, known: Collection[str]) -> str:
    """Return the place of a landing's option that was given to the set itself."""
    if key in SECTIONS or key in TOP:
        return f" (it is `defaults: {key}`)"
    if key in SECTION_KEYS:
        return f" (it is `defaults: {': '.join(SECTION_KEYS[key])}`)"
    return meant(key, known)


def fields_of(template: str) -> tuple[str, ...]:
    """Return the fields of a template.

    :raises ValueError: unbalanced braces
    """
    return tuple(name for _, name, _, _ in Formatter().parse(template) if name is not None)


def filled_template(template: str, values: Mapping[str, str | None]) -> str:
    """Return the name for one topic. A group outside of the match is empty."""
    return template.format_map({name: _OTHER.sub("_", value or "") for name, value in values.items()})


def _groups_of(pattern: str | None) -> tuple[str, ...]:
    return () if pattern is None else tuple(re.compile(pattern).groupindex)


def _wrong_with_pattern(value: Any) -> str | None:
    """Return what is wrong with a regular expression, ``None`` if it is valid."""
    if not isinstance(value, str) or not value:
        return f"{value!r} is not a regular expression [LC1177]"
    try:
        re.compile(value)
    except re.error as e:
        return f"{value!r} is not a regular expression: {e} [LC1178]"
    return None


def _wrong_with_template(template: Any, names: Collection[str], example: str = "a") -> str | None:
    """Return what is wrong with a table's template, ``None`` if it is valid.

    :param names: the known fields
    :param example: a sample value of a field
    """
    if not isinstance(template, str):
        return f"{template!r} is not a table name (namespace.table), with fields as in 'lake.{{topic}}' [LC1179]"
    try:
        found = fields_of(template)
    except ValueError as e:
        return f"{template!r} is not a template: {e} [LC1180]"
    for name in found:
        if name not in names:
            return (
                f"{template!r} has the unknown field {name!r}; allowed are "
                f"{', '.join(names) or 'none'}{meant(name, names)} [LC1181]"
            )
    return CHECKS["table"](template.format_map(dict.fromkeys(names, example)))


def _wrong(declared: LandingSet) -> Iterator[str]:
    if text := CHECKS["name"](declared.name):
        yield f"name: {text}"
    if declared.topics and (text := CHECKS["topics"](declared.topics)):
        yield f"topics: {text}"
    if not declared.topics and declared.topics_pattern is None:
        yield "needs `topics` (a list of names) or `topics_pattern` (a regular expression) [LC1127]"
    if not declared.table and not declared.rules:
        yield "needs `table` (as 'lake.{topic}') or `rules` [LC1128]"
    patterns = [("topics_pattern", declared.topics_pattern)] if declared.topics_pattern is not None else []
    bad = [(k, t) for k, v in patterns + _each("exclude", declared.exclude) if (t := _wrong_with_pattern(v))]
    yield from (f"{key}: {text}" for key, text in bad)
    groups = _groups_of(declared.topics_pattern) if not any(k == "topics_pattern" for k, _ in bad) else ()
    if declared.table is not None and (text := _wrong_with_template(declared.table, (TOPIC, *groups))):
        yield f"table: {text}"
    yield from _wrong_rules(declared.rules)
    if declared.dead_letter_table is not None:
        yield from _wrong_dead_letters(declared.dead_letter_table)
    for key, allowed in (("unmatched", UNMATCHED), ("missing_table", MISSING_TABLE)):
        if getattr(declared, key) not in allowed:
            yield f"{key}: {getattr(declared, key)!r} is not one of {', '.join(allowed)} [LC1129]"
    yield from _wrong_options(declared)


def _each(key: str, values: Any) -> list[tuple[str, Any]]:
    return [(f"{key}[{n}]", v) for n, v in enumerate(values if isinstance(values, tuple) else (values,))]


def _wrong_rules(rules: Any) -> Iterator[str]:
    for path, rule in _each("rules", rules):
        if not isinstance(rule, Mapping):
            yield f"{path}: {rule!r} is not a mapping of {', '.join(_RULE)} [LC1130]"
            continue
        yield from (f"{path}: {text}" for text in unknown_keys(map(str, rule), _RULE, lambda key: meant(key, _RULE)))
        text = _wrong_with_pattern(rule.get("topics"))
        names = (TOPIC, *(() if text else _groups_of(rule["topics"])))
        text = text or _wrong_with_template(rule.get("table"), names)
        if text:
            yield f"{path}: {text}"
        elif not isinstance(merge := rule.get("merge", False), bool):
            yield f"{path}: merge: {merge!r} is not true or false [LC1223]"


def _wrong_dead_letters(template: Any) -> Iterator[str]:
    text = _wrong_with_template(template, (_TABLE,), "a.a")
    if text or "{table}" not in template:
        # A table for all would hold all ledgers, and its corruption would block every landing.
        yield f"dead_letter_table: {text or f'needs {{table}}, as each table has its own: {template!r} [LC1224]'}"


def _wrong_options(declared: LandingSet) -> Iterator[str]:
    if not isinstance(declared.defaults, Mapping):
        yield f"defaults: {declared.defaults!r} is not a mapping of options of a landing [LC1131]"
        return
    yield from _wrong_landing("defaults", declared.defaults, declared.defaults, OWN)
    for path, override in _each("overrides", declared.overrides):
        if not isinstance(override, Mapping) or (text := _wrong_with_pattern(override.get(_TABLE))):
            problem = f"{override!r} is not a mapping" if not isinstance(override, Mapping) else f"table: {text}"
            yield f"{path}: {problem}"
            continue
        options = {k: v for k, v in override.items() if k != _TABLE}
        yield from _wrong_landing(path, options, merged(declared.defaults, options), (*OWN, *SHARED))


def _wrong_landing(
    path: str, stated: Mapping[str, Any], whole: Mapping[str, Any], not_here: Sequence[str]
) -> list[str]:
    """Return why a landing with these options would be refused."""
    if foreign := [key for key in map(label, to_flat(stated)) if key in not_here]:
        return [f"{path}: {', '.join(foreign)} cannot be set there [LC1222]"]
    try:
        Landing.from_dict({**whole, "name": "one", "topics": "one", "table": "a.one"})
    except SpecError as e:
        return [f"{path}: {mistake}" for mistake in e.mistakes]
    return []
