# SPDX-License-Identifier: Apache-2.0
"""How the operators of the reset family begin: each is a command of that family, and takes what a person asks by it.

Contract: that of :mod:`~airflow_provider_lakecommit.operators.decision`. A class says its command and which of its
arguments are asked for; what is asked for is templated, beside what every decision has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from airflow_provider_lakecommit.operators.decision import DecisionTask
from airflow_provider_lakecommit.reset_commands import spoken

__all__ = ["ResetTask"]


class ResetTask(DecisionTask):
    """Base of the operators by which a person says where a landing goes on, and what its tables hold."""

    resets: ClassVar[str]
    """The command, as it is typed."""
    asks: ClassVar[Sequence[str]] = ()
    """Its arguments that are templated."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.command = spoken(cls.resets)
        cls.template_fields = (*DecisionTask.template_fields, *cls.asks)
