# SPDX-License-Identifier: Apache-2.0
"""How many examples of a property are tried: an eighth of them in `make test`, all of them in `make test-all`.

They are the same in every run of a profile. `HYPOTHESIS_PROFILE=thorough` tries all, `=default` as many that nobody has
seen yet.
"""

from __future__ import annotations

import os

__all__ = ["PROFILE", "examples"]

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "steady")


def examples(whole: int) -> int:
    """Of so many, how many this run tries."""
    return -(-whole // 8) if PROFILE == "steady" else whole
