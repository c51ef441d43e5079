# SPDX-License-Identifier: Apache-2.0
"""Check that the landing's control records are signed, and report ignored ones.

Contract: the landing's partition of the control topic is read, nothing is written. Where records of the time before the
key are left, the setting is told by which they would be believed.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider_lakecommit.cycle import LandingSession, own_partition
from airflow_provider_lakecommit.exceptions import ControlTopicError
from airflow_provider_lakecommit.signing import KEY, UNSIGNED_BELOW, SigningKeys
from airflow_provider_lakecommit.status.doctor.finding import CheckResult, ok, warn

__all__ = ["signatures"]

CHECK = "control signatures"


def signatures(session: LandingSession) -> Iterable[CheckResult]:
    """What is seen of them."""
    keys = SigningKeys.of(session.kafka)
    if keys is None:
        yield warn(
            CHECK,
            f"nothing is signed: whoever may write to {session.control.name} can hold this landing up",
            f"state `{KEY}` beside the Kafka settings (docs: Security)",
        )
        return
    try:
        log = session.control.read(own_partition(session))
    except ControlTopicError as e:
        yield ok(CHECK, f"{keys}; nothing was read yet: {e}")
        return
    if doubted := [r.doubt for r in log.records if r.doubt is not None]:
        yield warn(
            CHECK,
            f"{len(doubted)} records are not believed, the newest is {doubted[-1]}",
            "if they are of the time before the key, leave them: what they were about is done again, or is believed "
            f"with `{UNSIGNED_BELOW}: {log.topic_id}/{log.partition}:{log.end}`; if not, see who else writes there",
        )
        return
    yield ok(CHECK, f"{keys}, {len(log.records)} records are believed")
