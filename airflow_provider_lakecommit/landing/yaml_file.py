# SPDX-License-Identifier: Apache-2.0
"""A YAML file: its keys and values, and ``${NAME}`` in them replaced by the value of an environment variable.

Contract: checks only that it is YAML, and a mapping with unique keys: YAML's own parser takes the last of two, and a
second ``table`` would send the rows elsewhere. Only values are replaced, never keys. ``$${`` means a plain ``${``.
Every other ``${`` is a reference, and an unresolvable one is an error with its path; all errors of a file are reported
together. References in a signing key are left to :func:`~airflow_provider_lakecommit.signing.resolved`, which also
reads files.

Failure story: no error text holds a value of the file, or of a variable. Variables that are secret by their name or
path are passed on, so that nothing else shows them either.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing.names import mistaken, unquoted
from airflow_provider_lakecommit.landing.options import SECTIONS
from airflow_provider_lakecommit.redaction import is_secret, yaml_trouble
from airflow_provider_lakecommit.signing import KEY, OTHER_KEY


def read_yaml(path: str | Path) -> dict[str, Any]:
    import yaml

    try:
        values = yaml_values(Path(path).read_text(encoding="utf-8"))
    except OSError as e:
        raise SpecError("LC1011", f"cannot read spec {path}: {e.strerror}") from e
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        raise SpecError("LC1012", f"spec {path} is not YAML: {yaml_trouble(e)}") from None
    if not isinstance(values, dict) or not all(isinstance(k, str) for k in values):
        if isinstance(values, dict) and (why := unquoted(values)):
            raise mistaken(f"spec {path}", [why])
        found = "the file is empty" if values is None else f"found {type(values).__name__}"
        raise SpecError("LC1013", f"spec {path}: expected a mapping of keys to values, as in `name: orders`; {found}")
    return values


def yaml_values(text: str) -> Any:
    """Parse a YAML text.

    :raises yaml.YAMLError: it is not YAML, or a mapping has a key twice
    """
    import yaml

    class _Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            known: set[str] = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                    if key.value in known:
                        raise yaml.constructor.ConstructorError(
                            None, None, f"key {key.value} is given twice", key.start_mark
                        )
                    known.add(key.value)
            return super().construct_mapping(node, deep)

    return yaml.load(text, _Loader)


_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)(\})?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHOWN = 40
"""Most characters of an invalid reference to show."""


@dataclass(slots=True, kw_only=True)
class Variables:
    """The variables that a file may use, and the findings."""

    values: Mapping[str, str]
    wrong: list[str] = field(default_factory=list)
    secret: dict[str, str] = field(default_factory=dict, repr=False)

    def filled(self, value: Any, path: str = "") -> Any:
        """Return *value* with all references resolved, at any depth."""
        match value:
            case str():
                return _REFERENCE.sub(lambda found: self._one(found, path), value)
            case Mapping():
                return {
                    key: each if key in (KEY, OTHER_KEY) else self.filled(each, f"{path}.{key}" if path else str(key))
                    for key, each in value.items()
                }
            case list():
                return [self.filled(each, f"{path}[{n}]") for n, each in enumerate(value)]
            case _:
                return value

    def _one(self, found: re.Match[str], path: str) -> str:
        name, closed = found[1], found[2]
        if name is None:
            return "${"
        if not closed or not _NAME.fullmatch(name):
            shown = found[0] if len(found[0]) <= _SHOWN else f"{found[0][:_SHOWN]}…"
            self.wrong.append(
                f"{path}: {shown!r} is not a reference such as ${{NAME}}; write `$${{` for a plain `${{` [LC1218]"
            )
            return found[0]
        if name not in self.values:
            self.wrong.append(
                f"{path}: the environment has no variable {name}: set it, or write `$${{{name}}}` [LC1219]"
            )
            # A placeholder for further checks, so that the reference is not also reported as an invalid topic name.
            return name
        value = self.values[name]
        if is_secret(name) or is_secret(path.rpartition(".")[2]):
            self.secret[name if is_secret(name) else f"{name}.secret"] = value
        return value


def from_environment(values: Any, what: str) -> Any:
    """Fill a file's values with this process's environment variables.

    :param what: names the file in the error
    :raises SpecError: a variable is missing
    """
    variables = Variables(values=os.environ)
    filled = variables.filled(values)
    if variables.wrong:
        raise mistaken(what, variables.wrong)
    return filled


def filled_field(variables: Variables, key: str, value: Any, kind: str) -> Any:
    """Fill the variables of a field, and convert a text to the number or boolean that the field needs.

    :param key: its path; each key of a section is a field
    :param kind: the field's annotation
    """
    import yaml

    if key in SECTIONS and isinstance(value, dict):
        kinds = {f.name: str(f.type) for f in dataclasses.fields(SECTIONS[key])}
        return {k: filled_field(variables, f"{key}.{k}", each, kinds.get(k, "str")) for k, each in value.items()}
    found = variables.filled(value, key)
    if found == value or not isinstance(found, str) or "str" in kind:
        return found
    with suppress(yaml.YAMLError):
        meant = yaml.safe_load(found)
        return meant if isinstance(meant, (int, float)) else found
    return found
