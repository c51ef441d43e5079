# SPDX-License-Identifier: Apache-2.0
"""``${NAME}`` in YAML files: replaced by the value of an environment variable.

Contract: only values are replaced, never keys. ``$${`` means a plain ``${``. Every other ``${`` is a reference, and an
unresolvable one is an error with its path; all errors of a file are reported together. References in a signing key are
left to :func:`~airflow_provider_lakecommit.signing.resolved`, which also reads files.

Failure story: no error text holds the value of a variable. Variables that are secret by their name or path are passed
on, so that nothing else shows them either.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_lakecommit.landing.names import mistaken
from airflow_provider_lakecommit.redaction import is_secret
from airflow_provider_lakecommit.signing import KEY, OTHER_KEY

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)(\})?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHOWN = 40
"""Most characters of an invalid reference to show."""


@dataclass(slots=True, kw_only=True)
class Variables:
    """The variables that a file may use, and the findings.

    :param values: name to value, as in ``os.environ``
    """

    values: Mapping[str, str]
    wrong: list[str] = field(default_factory=list)
    secret: dict[str, str] = field(default_factory=dict, repr=False)

    def filled(self, value: Any, path: str = "") -> Any:
        """Return *value* with all references resolved, at any depth.

        :param path: its path in the file, for :attr:`wrong`
        """
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
