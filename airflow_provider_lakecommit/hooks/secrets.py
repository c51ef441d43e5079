# SPDX-License-Identifier: Apache-2.0
"""Has Airflow strike secrets out of what its tasks show.

Contract: :func:`hide` names to Airflow all that is secret in some settings, in the forms in which a driver may show it;
from then on Airflow strikes them out of this process's logs, tracebacks and rendered fields. What it does not look at,
XComs among it, gets its text from :func:`told`. Light: imported when a DAG is parsed.

Failure story: Airflow leaves values of less than five characters alone (``[logging] min_length_masked_secret``), and
words of every message are not named to it, as it would strike them out of longer words too. Messages of this package
have been without them before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk.log import mask_secret, redact  # type: ignore[attr-defined]

from airflow_provider_lakecommit.redaction import shown_as, without

__all__ = ["hide", "told"]


def hide(settings: Mapping[str, Any]) -> None:
    """Let nothing secret of these settings be seen from now on."""
    if forms := shown_as(settings):
        # One message to the supervisor for all of them.
        mask_secret(list(forms))


def told(error: BaseException) -> str:
    """An error with its type, for an XCom or another error."""
    return without(str(redact(f"{type(error).__name__}: {error}")), ())
