# SPDX-License-Identifier: Apache-2.0
"""Pages made from the code, so that they cannot say something else than it.

`lakecommit-config` lists the options of `[lakecommit]` from the provider info. `lakecommit-error` describes one error
from its class, with the remedy as its body; an error class that no page describes is a warning, and `make docs` fails.
All other directives are in :mod:`lakecommit_tables`, :mod:`lakecommit_diagrams`, :mod:`lakecommit_errors` and
:mod:`lakecommit_commands`.
:mod:`lakecommit_glossary` links the terms of the glossary.
"""

from __future__ import annotations

import inspect
import textwrap
from typing import Any

import lakecommit_commands
import lakecommit_diagrams
import lakecommit_errors
import lakecommit_glossary
import lakecommit_tables
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from airflow_provider_lakecommit import exceptions
from airflow_provider_lakecommit.get_provider_info import get_provider_info

SECTION = "lakecommit"
logger = logging.getLogger(__name__)


class ConfigDirective(SphinxDirective):
    """Every option of the provider's configuration section."""

    def run(self) -> list[nodes.Node]:
        lines: list[str] = []
        for name, option in get_provider_info()["config"][SECTION]["options"].items():
            variable = f"AIRFLOW__{SECTION.upper()}__{name.upper()}"
            default = option["default"] or "(empty)"
            lines += [f"``{name}``", f"    {option['description']}", ""]
            lines += [f"    Type {option['type']}, default ``{default}``, environment variable ``{variable}``.", ""]
        return self.parse_text_to_nodes("\n".join(lines))


class ErrorDirective(SphinxDirective):
    """One error: what it means and whether a retry can help come from the class, the remedy from the page."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        error = error_classes().get(name)
        if error is None:
            raise self.error(f"there is no error class {name}")
        described(self.env).add(name)
        meaning = (inspect.getdoc(error) or "").splitlines()
        remedy = " ".join(line.strip() for line in self.content)
        body = "\n".join([*meaning, "", f"*Remedy:* {remedy}"])
        return self.parse_text_to_nodes(
            f".. _{name}:\n\n``{name}`` ({kind_of(error)})\n{textwrap.indent(body, '    ')}"
        )


def error_classes() -> dict[str, type[Exception]]:
    """The errors that this package raises, by name, without their root and the mixins."""
    root = exceptions.LakecommitError
    named = ((name, getattr(exceptions, name)) for name in exceptions.__all__)
    return {name: error for name, error in named if issubclass(error, root) and error is not root}


def kind_of(error: type[Exception]) -> str:
    """What a retry can do."""
    if issubclass(error, exceptions.Transient):
        return "transient: the next attempt may succeed"
    if issubclass(error, exceptions.Terminal):
        return "terminal: needs a change first"
    return "neither: this attempt is over"


def described(env: BuildEnvironment) -> set[str]:
    """Names of the errors described so far."""
    names: set[str] = env.__dict__.setdefault("lakecommit_errors", set())
    return names


def check_errors(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of an error class without a remedy."""
    for name in sorted(error_classes().keys() - described(env)):
        logger.warning("docs/reference/errors.rst has no entry for %s", name)


def setup(app: Sphinx) -> dict[str, Any]:
    """Entry point of Sphinx."""
    app.add_directive("lakecommit-config", ConfigDirective)
    app.add_directive("lakecommit-error", ErrorDirective)
    for name, directive in {
        **lakecommit_tables.DIRECTIVES,
        **lakecommit_diagrams.DIRECTIVES,
        **lakecommit_errors.DIRECTIVES,
        **lakecommit_commands.DIRECTIVES,
    }.items():
        app.add_directive(name, directive)
    app.connect("builder-inited", lakecommit_commands.write_pages)
    app.connect("env-check-consistency", check_errors)
    app.connect("doctree-resolved", lakecommit_glossary.link_first_uses)
    return {"version": "1", "parallel_read_safe": False, "parallel_write_safe": True}
