# SPDX-License-Identifier: Apache-2.0
"""The former names of operators of the reset family.

Contract: each is the operator that it is called now, and says so when a DAG is parsed.
"""

from __future__ import annotations

import warnings
from typing import Any

from airflow_provider_lakecommit.operators.reset import (
    ResetAttestOperator,
    ResetBlockedOperator,
    ResetOffsetsOperator,
)

__all__ = ["LedgerAttestOperator", "LedgerInitOperator", "UnblockOperator"]


def _tell(former: type, now: type) -> None:
    warnings.warn(
        f"{former.__name__} is {now.__name__} now: from {now.__module__} import {now.__name__}",
        DeprecationWarning,
        stacklevel=4,
    )


class UnblockOperator(ResetBlockedOperator):
    """The former name of ``ResetBlockedOperator``."""

    def __init__(self, **kwargs: Any) -> None:
        _tell(UnblockOperator, ResetBlockedOperator)
        super().__init__(**kwargs)


class LedgerInitOperator(ResetOffsetsOperator):
    """The former name of ``ResetOffsetsOperator``."""

    def __init__(self, **kwargs: Any) -> None:
        _tell(LedgerInitOperator, ResetOffsetsOperator)
        super().__init__(**kwargs)


class LedgerAttestOperator(ResetAttestOperator):
    """The former name of ``ResetAttestOperator``."""

    def __init__(self, **kwargs: Any) -> None:
        _tell(LedgerAttestOperator, ResetAttestOperator)
        super().__init__(**kwargs)
