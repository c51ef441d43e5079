# SPDX-License-Identifier: Apache-2.0
"""The control topic that a ledger names, which may differ from the reading landing's.

Contract: reads only which topic it is. Another topic is read with the settings of the session, including its signing
keys.

Failure story: a topic that is missing or was recreated under the same name knows nothing of a ledger: ``None``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow_provider_lakecommit.core import ControlPosition
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.cycle.session.ports import ControlPort


@contextmanager
def log_of(session: LandingSession, position: ControlPosition) -> Iterator[ControlPort | None]:
    """Yield the control topic that a ledger names; ``None`` if it is missing or was recreated.

    :raises ControlTopicError: it cannot be read
    """
    own = position.topic == session.control.name
    control = session.control if own else session.control.other(position.topic)
    try:
        place = control.describe() if own or control.exists() else None
        same = place is not None and (place.cluster_id, place.topic_id) == (position.cluster_id, position.topic_id)
        yield control if same else None
    finally:
        if not own:
            control.close()
