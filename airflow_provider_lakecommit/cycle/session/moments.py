# SPDX-License-Identifier: Apache-2.0
"""The source's offsets at a time: the first record at or after it, per partition.

Contract: asks the brokers, which use the timestamps of records. Records may be out of order: an earlier one may come
after the returned offset.

Failure story: brokers that do not answer in time are an error that names the partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from airflow_provider_lakecommit.core import SourcePartition, Watermark
from airflow_provider_lakecommit.cycle.session.ports import SourcePort
from airflow_provider_lakecommit.exceptions import SourceUnavailableError

CHECK_SECONDS = 30.0
"""Seconds that brokers may take to answer."""


def offsets_at(
    source: SourcePort, marks: Mapping[SourcePartition, Watermark], moment: datetime
) -> dict[SourcePartition, int | None]:
    """Return the first offset at or after a time, up to the last stable one; ``None`` if no record is so late.

    :raises SourceUnavailableError: the brokers did not answer in time
    """
    found = {p: first for p, _, first in source.request_first_since([(p, moment) for p in marks])(CHECK_SECONDS)}
    if silent := sorted(marks.keys() - found.keys()):
        raise SourceUnavailableError(
            "LC6221",
            f"the brokers did not report within {CHECK_SECONDS:.0f} s the offset of {moment.isoformat()} in "
            f"{', '.join(map(str, silent))}: try again, or state offsets",
        )
    return {p: None if first is None else min(first[0], marks[p].stable) for p, first in found.items()}
