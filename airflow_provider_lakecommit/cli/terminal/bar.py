# SPDX-License-Identifier: Apache-2.0
"""The progress of a landing as one live line at the bottom of a terminal.

Contract: :func:`bar` is a function of its arguments.
"""

from __future__ import annotations

from airflow_provider_lakecommit.core import short_number
from airflow_provider_lakecommit.core.shown import duration_text
from airflow_provider_lakecommit.cycle import Progress

BAR_SECONDS = 1.0
"""Time between two reads of the control topic."""
WIDTH = 24


def bar(name: str, progress: Progress) -> str:
    share = progress.records / progress.all_records if progress.all_records else 0.0
    full = int(share * WIDTH)
    parts = [
        f"{progress.slices}/{progress.all_slices} slices",
        f"{short_number(progress.records)} of {short_number(progress.all_records)} records",
    ]
    if progress.trouble:
        parts.append(f"{progress.seconds:.0f} s, no answer from the control topic")
    elif progress.left is None:
        parts.append(f"{progress.seconds:.0f} s")
    else:
        parts += [f"{short_number(progress.rate)}/s", f"{duration_text(progress.left)} left"]
    return f"{name} {'█' * full}{'░' * (WIDTH - full)} {share:4.0%}  {' · '.join(parts)}"
