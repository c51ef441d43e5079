# SPDX-License-Identifier: Apache-2.0
"""The error of a declaration with one or more mistakes.

Contract: pure. A mistake is a text that ends with its code, as in ``replicas: 0 is not an integer [LC1117]``. All
mistakes of a declaration are reported together, one per line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from airflow_provider_lakecommit.exceptions import SpecError

_CODED = re.compile(r"(.*) \[(LC\d{4})\]", re.DOTALL)


def mistaken(what: str, mistakes: Sequence[str]) -> SpecError:
    """Return the error of a declaration: a single mistake sets its code.

    :param what: name of the declaration, as in ``landing 'orders'``
    """
    if len(mistakes) == 1 and (found := _CODED.fullmatch(mistakes[0])) is not None:
        return SpecError(found[2], f"{what}: {found[1]}", tuple(mistakes))
    lines = "".join(f"\n- {one}" for one in mistakes)
    return SpecError("LC1001", f"{what} has {len(mistakes)} mistakes{lines}", tuple(mistakes))
