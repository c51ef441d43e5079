# SPDX-License-Identifier: Apache-2.0
"""The operations on a landing by their names.

Contract: a name is the spelling of the command without the program, from
:mod:`~airflow_provider_lakecommit.core.commands`. The class has the arguments with their types, and the action.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_provider_lakecommit.operators.decisions.adopt import Adopt
from airflow_provider_lakecommit.operators.decisions.blocked import ResetBlocked
from airflow_provider_lakecommit.operators.decisions.dead_letters import ReplayDeadLetters
from airflow_provider_lakecommit.operators.decisions.key import ResetKey
from airflow_provider_lakecommit.operators.decisions.migrate import Migrate
from airflow_provider_lakecommit.operators.decisions.offsets import ResetHard, ResetOffsets
from airflow_provider_lakecommit.operators.decisions.operation import Operation
from airflow_provider_lakecommit.operators.decisions.publish_now import PublishNow
from airflow_provider_lakecommit.operators.decisions.reset_assert import ResetAssert

_ALL: tuple[type[Operation], ...] = (
    ResetOffsets,
    ResetHard,
    ResetBlocked,
    ResetAssert,
    Migrate,
    ResetKey,
    Adopt,
    ReplayDeadLetters,
    PublishNow,
)
OPERATIONS: Mapping[str, type[Operation]] = {kind.name: kind for kind in _ALL}
""" ``reset offsets``, ``dead-letters``, … """
