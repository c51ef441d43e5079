# SPDX-License-Identifier: Apache-2.0
"""Masks secrets in what Airflow's tasks show.

:func:`hide` registers all secrets in some settings, in all forms in which a driver may show them; from then on Airflow
masks them in this process's logs, tracebacks and rendered fields. For what Airflow does not mask, such as XComs, use
:func:`told`. Imported when a DAG is parsed, so it must be light.

Airflow ignores values of less than five characters (``[logging] min_length_masked_secret``). Words that every message
has are not registered, because Airflow would mask them within longer words too; this package's messages never have
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk.log import mask_secret, redact  # type: ignore[attr-defined]

from airflow_provider_lakecommit.redaction import shown_as, without

__all__ = ["hide", "told"]


def hide(settings: Mapping[str, Any]) -> None:
    """Mask the secrets of these settings from now on."""
    if forms := shown_as(settings):
        # One message to the supervisor for all of them.
        mask_secret(list(forms))


def told(error: BaseException) -> str:
    """Return an error with its type, for an XCom or another error."""
    return without(str(redact(f"{type(error).__name__}: {error}")), ())
