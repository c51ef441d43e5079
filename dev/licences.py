# SPDX-License-Identifier: Apache-2.0
"""The licence of every installed Python library; fails on one that is unknown or not allowed.

Contract: a distribution's licence is its `License-Expression`; else its licence classifiers, all of which must be
allowed, because they do not say whether they are a choice; else a `License` field of one line. :data:`ALLOWED` is what
any dependency of a work under the Apache License 2.0 may have; :data:`EXCEPTIONS` names others, each with the reason
why it may stay.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from importlib.metadata import distributions
from typing import Protocol

OURS = "airflow-provider-lakecommit"
ALLOWED = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "ISC",
        "MIT",
        "MIT-0",
        "MPL-2.0",  # copyleft per file, and no file of theirs is changed or shipped here
        "PSF-2.0",
        "Unlicense",
        "Zlib",
    }
)
EXCEPTIONS = {
    "docutils": "public domain and BSD; the GPL is that of an Emacs mode in its sources. For documentation only",
    "openlineage_sql": "Apache-2.0 as all of OpenLineage, which its wheel does not say; in an extra only",
    "psycopg2-binary": "LGPL with exceptions; a library that is loaded as it is, in the extra `postgres` only",
    "text-unidecode": "Artistic License or GPL, at one's choice; Airflow brings it",
}
NAMES = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache license 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd license": "BSD-3-Clause",
    "cc0": "CC0-1.0",
    "dfsg approved": "",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "osi approved": "",
    "python software foundation license": "PSF-2.0",
    "the unlicense (unlicense)": "Unlicense",
}
"""What older metadata call a licence; empty where it is the name of none."""


class Metadata(Protocol):
    """Of a distribution, as much as is read."""

    def get_all(self, name: str, /) -> list[str] | None:
        """All values of a field."""


def licence(metadata: Metadata) -> str:
    """The licence as an SPDX expression as far as its names are known; empty where none is told."""
    for expression in metadata.get_all("License-Expression") or ():
        return expression
    classifiers = metadata.get_all("Classifier") or ()
    told = [name.rpartition(" :: ")[2] for name in classifiers if name.startswith("License :: ")]
    named = [name for name in (NAMES.get(one.lower(), one) for one in told) if name]
    if named:
        return " AND ".join(named)
    for text in metadata.get_all("License") or ():
        if text and "\n" not in text and text != "UNKNOWN":
            return NAMES.get(text.lower(), text)
    return ""


def is_allowed(expression: str) -> bool:
    """Whether an expression can be met by allowed licences. AND binds stronger than OR."""
    inner = re.search(r"\(([^()]*)\)", expression)
    if inner:
        name = "MIT" if is_allowed(inner[1]) else "not allowed"
        return is_allowed(f"{expression[: inner.start()]}{name}{expression[inner.end() :]}")
    return any(all(name in ALLOWED for name in choice.split(" AND ")) for choice in expression.split(" OR "))


def judge(installed: Iterable[tuple[str, str, str]]) -> tuple[list[str], list[str]]:
    """A line for each (name, version, licence), and what is wrong among them."""
    lines, wrong = [], []
    for name, version, expression in sorted(installed, key=lambda one: one[0].lower()):
        reason = EXCEPTIONS.get(name.lower())
        allowed = is_allowed(expression)
        note = f"  ({reason})" if reason and not allowed else ""
        lines.append(f"{name:42} {version:18} {expression or 'unknown'}{note}")
        if not allowed and not reason:
            told = f"the licence {expression} is not allowed" if expression else "no licence is told"
            wrong.append(f"{name} {version}: {told}")
    return lines, wrong


def main() -> int:
    """Print the list; 1 if a licence is unknown or not allowed."""
    found = [(one.name, one.version, licence(one.metadata)) for one in distributions() if one.name != OURS]
    lines, wrong = judge(found)
    print("\n".join(lines))
    if wrong:
        print(*wrong, "Take another library, or say in dev/licences.py why it may stay.", sep="\n", file=sys.stderr)
        return 1
    print(f"{len(lines)} libraries, every licence is known and allowed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
