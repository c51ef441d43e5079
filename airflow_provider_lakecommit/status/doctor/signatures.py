# SPDX-License-Identifier: Apache-2.0
"""Check that the landing's control records are signed, and report ignored ones.

Contract: reads the landing's partition of the control topic, writes nothing. If older unsigned records remain, the
finding has the setting that accepts them.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider_lakecommit.cycle import LandingSession, own_partition
from airflow_provider_lakecommit.exceptions import ControlTopicError
from airflow_provider_lakecommit.signing import KEY, UNSIGNED_BELOW, SigningKeys
from airflow_provider_lakecommit.status.doctor.finding import CheckResult, ok, warn

CHECK = "control signatures"


def signatures(session: LandingSession) -> Iterable[CheckResult]:
    keys = SigningKeys.of(session.kafka)
    if keys is None:
        yield warn(
            CHECK,
            f"nothing is signed: any writer to {session.control.name} can block this landing",
            f"set `{KEY}` next to the Kafka settings (docs: Security)",
        )
        return
    try:
        log = session.control.read(own_partition(session))
    except ControlTopicError as e:
        yield ok(CHECK, f"{keys}; no records could be read yet: {e}")
        return
    if doubted := [r.doubt for r in log.records if r.doubt is not None]:
        yield warn(
            CHECK,
            f"{len(doubted)} records are unverified, the newest is {doubted[-1]}",
            "if they are older than the key, leave them: their work is repeated, or accept them "
            f"with `{UNSIGNED_BELOW}: {log.topic_id}/{log.partition}:{log.end}`; if not, check who else writes there",
        )
        return
    yield ok(CHECK, f"{keys}, {len(log.records)} records are verified")
