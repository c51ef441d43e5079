# SPDX-License-Identifier: Apache-2.0
"""Tables and lists made from the code: the protocol, enums, numbers, mappings, schemas, the fields of a landing.

Contract: what a directive names and the code does not hold, or holds without a word of explanation, is an error, so
`make docs` fails.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any

from docutils import nodes
from lakecommit_source import MissingError, described, effects, load, messages, summary
from sphinx.util.docutils import SphinxDirective

PARAMETER = re.compile(r":param (\w+): (.*?)(?=\n:|\Z)", re.DOTALL)
ROLE = re.compile(r":[a-z]+:`([^`]+)`")
SENT_BY = {
    "cycle.plan.start": "plan",
    "cycle.commit.close": "commit",
    "cycle.commit.publish": "commit",
    "cycle.commit.refusals": "commit",
    "operations.maintenance.lane_files": "``lakecommit maintain``",
    "operations.decisions.unblock": "``lakecommit reset blocked``",
    "cycle.session.early_end": "who is told to stop, or wants a window published now",
    "spark.report": "the Spark task of the slice",
}
"""Who runs the modules that send messages."""
UNREADABLE = "Unreadable"
"""The entry that no message is: a record that cannot be read."""


class TableDirective(SphinxDirective):
    """Base: a directive that is replaced by reStructuredText made from the code."""

    def rst(self) -> Iterable[str]:
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes("\n".join(self.rst()))


def table(header: Sequence[str], rows: Iterable[Sequence[str]], widths: str = "auto") -> Iterable[str]:
    """A ``list-table``."""
    yield from (".. list-table::", "   :header-rows: 1", f"   :widths: {widths}", "")
    for row in (header, *rows):
        yield from (f"   {'* -' if n == 0 else '  -'} {cell}" for n, cell in enumerate(row))
    yield ""


def code(text: object) -> str:
    return f"``{text}``"


def prose(text: str) -> str:
    """A docstring's text without the names of Sphinx's roles."""
    return ROLE.sub(lambda found: code(found[1].lstrip("~").rpartition(".")[2]), text)


class ProtocolDirective(TableDirective):
    """The messages of the control topic: who sends them and what they say."""

    def rst(self) -> Iterable[str]:
        rows = []
        for m in messages():
            if unknown := set(m.senders) - SENT_BY.keys():
                raise MissingError(f"nobody says who runs {sorted(unknown)}, which send {m.kind}")
            by = " or ".join(dict.fromkeys(SENT_BY[s] for s in m.senders))
            said = summary(load(f"core.log:{m.entry}").__doc__).partition(": ")[2]
            rows.append((code(m.event), code(m.kind), by, prose(said)))
        return table(("event", "kind in the header", "sent by", "what it says"), rows)


class EffectsDirective(TableDirective):
    """What each entry of the log may change in the fold."""

    def rst(self) -> Iterable[str]:
        kinds = {m.entry: m for m in messages()}
        landing_state = {f.name for f in dataclasses.fields(load("core.state:LandingState"))}
        rows = []
        for entry, effect in effects().items():
            if entry not in kinds and entry != UNREADABLE:
                raise MissingError(f"the fold takes {entry}, which is no message of the protocol")
            changes = ", ".join(code(name) for name in sorted(effect.changes & landing_state))
            said = changes or "nothing by itself"
            rows.append(
                (
                    f"{code(entry)} ({kinds[entry].event if entry in kinds else 'any'})",
                    said,
                    "yes" if effect.directives else "no",
                )
            )
        return table(("entry", "what it may change", "carries directives"), rows)


class EnumDirective(TableDirective):
    """The members of an enum with what the code says of each; what it does not say is in the body as `name: text`."""

    required_arguments = 1
    has_content = True

    def rst(self) -> Iterable[str]:
        place = self.arguments[0]
        found = load(place)
        if not issubclass(found, StrEnum):
            raise MissingError(f"{place} is no enum of texts")
        here = dict(line.split(": ", 1) for line in self.content if ": " in line)
        said = {found[name].value: text for name, text in described(place).items()}
        known = {str(member) for member in found}
        if wrong := (here.keys() & said.keys()) | (here.keys() - known):
            raise MissingError(f"{place}: the code has its own word on, or nothing called {sorted(wrong)}")
        if silent := known - said.keys() - here.keys():
            raise MissingError(f"{place}: nothing is said of {sorted(silent)}")
        return table(("value", "meaning"), [(code(m), prose({**said, **here}[str(m)])) for m in found])


class OutcomeDirective(TableDirective):
    """The rows that decide how a run ends."""

    def rst(self) -> Iterable[str]:
        rows = load("core.outcome:TABLE")
        return table(
            ("", "first that applies", "the run ends"), [(f"{n}.", r.name, r.verdict) for n, r in _counted(rows)]
        )


def _counted(rows: Iterable[Any]) -> Iterable[tuple[int, Any]]:
    return enumerate(rows, start=1)


class NumbersDirective(TableDirective):
    """Numbers of the code with what is said of each there: one ``module:NAME`` a line, after it a text if needed."""

    has_content = True

    def rst(self) -> Iterable[str]:
        rows = []
        for line in filter(None, self.content):
            place, _, text = line.partition(" ")
            module, _, name = place.partition(":")
            said = described(module).get(name) or text
            if not said:
                raise MissingError(f"nothing is said of {place}")
            rows.append((prose(said).rstrip("."), _number(load(place)), code(place)))
        return table(("what", "value", "where"), rows)


def _number(value: object) -> str:
    if isinstance(value, timedelta):
        return f"{value.days} days" if value.days > 1 else f"{value.days} day" if value.days else str(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


class MappingDirective(TableDirective):
    """A mapping of the code as a table, or a set of names as a line."""

    required_arguments = 1

    def rst(self) -> Iterable[str]:
        found = load(self.arguments[0])
        if isinstance(found, Mapping):
            return table(("name", "value"), [(code(k), code(v)) for k, v in found.items()])
        return [", ".join(code(name) for name in sorted(found)) + "."]


class MetricsDirective(TableDirective):
    """Every metric: its name, its name in Prometheus, its tags, who sends it, what it is."""

    def rst(self) -> Iterable[str]:
        called = load("telemetry.metrics:prometheus_name")
        rows = (
            (code(m.name), code(called(m)), m.kind, ", ".join(m.tags), m.sent_by, m.text)
            for m in load("telemetry.metrics:METRICS")
        )
        return table(("name", "in Prometheus", "kind", "tags", "sent by", "what it is"), rows, "15 20 8 10 12 35")


class SchemaDirective(TableDirective):
    """An Iceberg schema of the code."""

    required_arguments = 1

    def rst(self) -> Iterable[str]:
        rows = [
            (code(f.name), code(f.field_type), "yes" if f.required else "no") for f in load(self.arguments[0]).fields
        ]
        return table(("column", "type", "required"), rows)


class LandingDirective(TableDirective):
    """The options of a landing, those of each section below it: type, default and meaning."""

    def rst(self) -> Iterable[str]:
        sections = load("landing.options:SECTIONS")
        for f, text in _fields(load("landing:Landing")):
            yield from (f"{code(f.name)}", f"    {prose(text)}", "")
            if f.name in sections:
                for key, said in _fields(sections[f.name]):
                    yield from (f"    {code(f'{f.name}.{key.name}')}", f"        {prose(said)}", "")
                    yield from (f"        {code(key.type)}, {_default(key)}.", "")
            else:
                yield from (f"    {code(f.type)}, {_default(f)}.", "")


def _fields(declared: type) -> Iterable[tuple[dataclasses.Field[Any], str]]:
    """The fields of a dataclass, each with its text in the docstring."""
    said = {name: " ".join(text.split()) for name, text in PARAMETER.findall(inspect.getdoc(declared) or "")}
    fields = dataclasses.fields(declared)
    if different := {f.name for f in fields} ^ said.keys():
        raise MissingError(f"fields and docstring of {declared.__name__} differ in {sorted(different)}")
    return [(f, said[f.name]) for f in fields]


def _default(f: dataclasses.Field[Any]) -> str:
    if isinstance(f.default, timedelta):
        return f"default {code(f.default.total_seconds())} (a number is seconds)"
    if f.default is not dataclasses.MISSING:
        return f"default {code(repr(f.default))}"
    return "required" if f.default_factory is dataclasses.MISSING else "default empty"


DIRECTIVES = {
    "lakecommit-protocol": ProtocolDirective,
    "lakecommit-effects": EffectsDirective,
    "lakecommit-enum": EnumDirective,
    "lakecommit-outcomes": OutcomeDirective,
    "lakecommit-numbers": NumbersDirective,
    "lakecommit-mapping": MappingDirective,
    "lakecommit-metrics": MetricsDirective,
    "lakecommit-schema": SchemaDirective,
    "lakecommit-landing": LandingDirective,
}
