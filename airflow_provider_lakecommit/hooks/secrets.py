# SPDX-License-Identifier: Apache-2.0
"""Let Airflow mask secrets in the output of its tasks.

Contract: :func:`hide` registers all secrets of some settings with Airflow, in each form that a driver may print. From
then on Airflow masks them in this process's logs, tracebacks and rendered fields. :func:`without_secrets` masks them in
text that Airflow does not check, such as XComs. Light: imported when a DAG is parsed.

Failure story: Airflow does not mask values of less than five characters (``[logging] min_length_masked_secret``). Words
that every message contains are not registered, because Airflow would mask them inside longer words too. This package
has already removed them from its own messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk.log import mask_secret, redact  # type: ignore[attr-defined]

from airflow_provider_lakecommit.redaction import shown_as, without


def hide(settings: Mapping[str, Any]) -> None:
    """Mask the secrets of these settings from now on."""
    if forms := shown_as(settings):
        # One message to the supervisor for all of them.
        mask_secret(list(forms))


def without_secrets(error: BaseException) -> str:
    """Return an error with its type, for an XCom or another error."""
    return without(str(redact(f"{type(error).__name__}: {error}")), ())
