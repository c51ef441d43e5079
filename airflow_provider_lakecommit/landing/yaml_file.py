# SPDX-License-Identifier: Apache-2.0
"""A YAML file: its keys and values, and its fields with environment variables filled in.

Contract: checks only that it is YAML, and a mapping with unique keys: YAML's own parser takes the last of two, and a
second ``table`` would send the rows elsewhere. No error text holds a value of the file.
"""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from pathlib import Path
from typing import Any

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing.names import mistaken, unquoted
from airflow_provider_lakecommit.landing.sections import SECTIONS
from airflow_provider_lakecommit.landing.variables import Variables
from airflow_provider_lakecommit.redaction import yaml_trouble


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read the keys and values of a file.

    :raises SpecError: the file is unreadable, or not a mapping
    """
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
