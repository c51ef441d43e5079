# SPDX-License-Identifier: Apache-2.0
"""Where a time is in the source: the first record at or after it, partition by partition.

Contract: asks the brokers, who go by the timestamps of records. Records that are out of order are where they are: an
earlier one may come after the offset that is told.

Failure story: brokers that do not answer in time are an error that names the partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from airflow_provider_lakecommit.core import SourcePartition, Watermark
from airflow_provider_lakecommit.cycle.session.ports import SourcePort
from airflow_provider_lakecommit.exceptions import SourceUnavailableError

__all__ = ["offsets_at"]

ASK_SECONDS = 30.0
"""Seconds that brokers may take to answer."""


def offsets_at(
    source: SourcePort, marks: Mapping[SourcePartition, Watermark], moment: datetime
) -> dict[SourcePartition, int | None]:
    """The first offset at or after a time, no later than the last stable one; ``None``: no record is so late.

    :raises SourceUnavailableError: the brokers did not say in time
    """
    found = {p: first for p, _, first in source.ask_first_since([(p, moment) for p in marks])(ASK_SECONDS)}
    if silent := sorted(marks.keys() - found.keys()):
        raise SourceUnavailableError(
            "LC6221",
            f"the brokers did not report within {ASK_SECONDS:.0f} s the offset of {moment.isoformat()} in "
            f"{', '.join(map(str, silent))}: try again, or state offsets",
        )
    return {p: None if first is None else min(first[0], marks[p].stable) for p, first in found.items()}
