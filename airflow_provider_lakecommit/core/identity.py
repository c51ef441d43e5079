# SPDX-License-Identifier: Apache-2.0
"""Deterministic ids: every process makes the same id for the same work.

They hold no attempt number, so a retry or replica of a slice has the same ``window_id`` and ``slice_id``. Attempts
differ by the random ``attempt`` of their report, which names the slice it was made for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from uuid import UUID, uuid5

from airflow_provider_lakecommit.core.model import Span

_NAMESPACE = UUID("5c0a6d9e-7a3c-5f0e-9f55-1a4e0c0fd3b1")
_NONCE = 6
"""Random bytes of an attempt's id."""
_NUMBERED = 8
"""The version of ids that identify their slice."""


def group_id(landing: str) -> str:
    """Return the ``group_id`` of all events of a landing."""
    return f"lakecommit-{landing}"


def set_of(landing: str, table: str) -> str:
    """Return the landing set in a landing's name ``<set>.<table>``, or an empty string."""
    name = landing.removesuffix(f".{table}")
    return "" if name == landing else name


def cycle_id(deployment: str, landing: str, lane: str, dag: str, run: str, n: int) -> UUID:
    """Return the commit id of a run's n-th cycle, the same for every retry of that run."""
    return uuid5(_NAMESPACE, "\x1f".join(("cycle", deployment, landing, lane, dag, run, str(n))))


def _spans_text(spans: Iterable[Span]) -> str:
    return ";".join(
        f"{s.partition.topic_id}:{s.partition.partition}:{s.range.start}:{s.range.end}" for s in sorted(spans)
    )


def window_id(landing: str, lane: str, spec_version: str, epochs: Mapping[str, UUID], spans: Iterable[Span]) -> UUID:
    """Return the id of a window: what is read, under which spec and epochs."""
    epoch_text = ",".join(f"{t}={e}" for t, e in sorted(epochs.items()))
    return uuid5(_NAMESPACE, "\x1f".join(("window", landing, lane, spec_version, epoch_text, _spans_text(spans))))


def slice_id(window: UUID, spans: Iterable[Span], tables: Iterable[str]) -> UUID:
    return uuid5(window, "\x1f".join(("slice", ",".join(sorted(tables)), _spans_text(spans))))


def attempt_id(of: UUID, random: UUID) -> UUID:
    """Return the id of an attempt and of its files: a nonce and a digest of nonce and slice.

    No report can therefore pass these files off as those of other offsets.
    """
    nonce = random.bytes[:_NONCE]
    digest = hashlib.sha256(b"attempt\x1f" + of.bytes + nonce).digest()
    raw = bytearray(nonce + digest[: 16 - _NONCE])
    raw[6], raw[8] = raw[6] & 0x0F | 0x80, raw[8] & 0x3F | 0x80
    return UUID(bytes=bytes(raw))


def is_attempt_at(attempt: UUID, of: UUID) -> bool | None:
    """Return True if the attempt was made at this slice; ``None`` if its id is of an older form."""
    return attempt == attempt_id(of, attempt) if attempt.version == _NUMBERED else None


def token(commit_id: UUID, table_uuid: UUID, slice_ids: Iterable[UUID]) -> UUID:
    """Return the name of the snapshot that publishes these slices, so that it is announced once."""
    return uuid5(commit_id, f"{table_uuid}\x1f" + ",".join(sorted(str(s) for s in slice_ids)))


def transactional_id(landing: str, lane: str, deployment: str, slot: int, role: str) -> str:
    """Return an id of the bounded pool of one landing's lane in one deployment; opening it fences its former user.

    ``@`` is in no landing's name, so ``lakecommit-<landing>-@`` is a prefix of this landing's ids alone.
    """
    deployment_part = f"@{deployment}-" if deployment else ""
    return f"lakecommit-{landing}-{deployment_part}{lane}-{slot}-{role}"
