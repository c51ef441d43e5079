# SPDX-License-Identifier: Apache-2.0
"""Where a checkout keeps what it fetches and what it runs.

Everything lands under one run directory, `.run` beside this package or `LAKECOMMIT_RUN_DIR`, so that `make clean` is
the removal of one folder and several checkouts can share the jars.
"""

from __future__ import annotations

import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent


def run_dir() -> Path:
    """The run directory, made if missing. Read at call time, so that tests can point it elsewhere."""
    directory = Path(os.environ.get("LAKECOMMIT_RUN_DIR") or CHECKOUT / ".run").resolve()
    directory.mkdir(parents=True, exist_ok=True)
    return directory
