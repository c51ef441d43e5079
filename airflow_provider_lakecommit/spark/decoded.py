# SPDX-License-Identifier: Apache-2.0
"""How many records of unfinished slices are decoded, for the progress of a run whose tasks are on its own machine.

Contract: a file per slice, in the folder that the environment variable :data:`DECODED` names. Spark itself reports
nothing of a Python task before its end, and the control topic has no record for parts of a slice: so tasks elsewhere
show none. For display only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from airflow_provider_lakecommit.core import Slice

DECODED = "LAKECOMMIT_DECODED"


def note_decoded(work: Slice, records: int) -> None:
    """Note that so many records of a slice, or of a part of one, are decoded."""
    if folder := os.environ.get(DECODED):
        with suppress(OSError):
            Path(folder, str(work.slice_id)).write_text(str(records), encoding="ascii")


def decoded_of(slices: Iterable[Slice]) -> int:
    """Return how many records of these slices are decoded, as far as this machine knows."""
    folder, known = os.environ.get(DECODED), 0
    for work in slices if folder else ():
        with suppress(OSError, ValueError):
            known += int(Path(folder or "", str(work.slice_id)).read_text(encoding="ascii"))
    return known
