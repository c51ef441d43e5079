# SPDX-License-Identifier: Apache-2.0
"""A backfill: land a range of the topics alongside the live stream.

Contract: the task lands its range as a backfill of its own, cycle after cycle, until the tables have all of it, and
closes the backfill. Rows that the tables have already stay and are not read again, so Airflow's own Backfill of a DAG
may cover landed days. It ends as :class:`~airflow_provider_lakecommit.operators.land.KafkaToIcebergOperator` does, and
*skipped* if nothing of the range is missing. A retry, or a cleared run, continues its backfill.

Failure story: that of ``KafkaToIcebergOperator``. A task that fails for good leaves the backfill open: clear the same
run, or run `lakecommit backfill` with the same range, to continue it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import span_of
from airflow_provider_lakecommit.operations import LaneRequest, is_stated, lane_request, texts_of
from airflow_provider_lakecommit.operators.base import WARNING, landing_of, without_event
from airflow_provider_lakecommit.operators.land import KafkaToIcebergOperator

if TYPE_CHECKING:
    from airflow.sdk import Asset, Context

    from airflow_provider_lakecommit.cycle import Closed, EarlierCycles, LandingSession, RunIdentity
    from airflow_provider_lakecommit.landing import Landing
    from airflow_provider_lakecommit.operations import LanePreview
    from airflow_provider_lakecommit.spark import Engine

__all__ = ["BackfillOperator"]


_FOLLOWING = ("follow_for", "window_age", "keep_snapshots", "hourly")


class BackfillOperator(KafkaToIcebergOperator):
    """Land the records of a time, or a range of offsets, alongside the live stream.

    Returns how the run ended, as `KafkaToIcebergOperator` does.

    :param landing: the landing, or the path of its YAML spec
    :param since: start at the first record with this timestamp or a later one; ISO text, UTC by default. By default the
        start of the run's data interval (templated)
    :param until: stop before the first record with this timestamp or a later one. By default the end of the data
        interval (templated)
    :param ranges: offsets instead of times, for example `topic:3=15-20`; several as a list, or with commas (templated)
    :param lane: name of the backfill; by default made from the range (templated)
    :param max_records: most records per window, instead of the landing's own limit: small windows leave more of a
        shared Spark to the live stream
    :param groups: partition groups per window, likewise
    :param yield_to_live: the live stream goes first: the task opens no window while the live stream has unlanded
        records older than this; a timedelta, seconds, or a text such as ``30s``
    :param spark_conn_id: as for `KafkaToIcebergOperator` (templated)
    :param spark_conf: likewise (templated)
    :param max_cycles: most cycles per attempt; the rest stays in the backfill
    :param outlets: assets in addition to that of the landing

    .. seealso:: :ref:`howto/operator:BackfillOperator`
    """

    # A backfill's cycles are its own, so one DAG may land and fill holes.
    opens_cycles: ClassVar[bool] = False
    takes_sets: ClassVar[bool] = False
    replaces: ClassVar[bool] = False
    template_fields: Sequence[str] = (*KafkaToIcebergOperator.template_fields, "since", "until", "ranges", "lane")
    ui_color = "#e6e6f3"

    def __init__(
        self,
        *,
        landing: Landing | str | Path,
        since: str | datetime | None = "{{ data_interval_start }}",
        until: str | datetime | None = "{{ data_interval_end }}",
        ranges: str | Sequence[str] | None = None,
        lane: str | None = None,
        max_records: int | None = None,
        groups: int | None = None,
        yield_to_live: timedelta | str | float | None = None,
        spark_conn_id: str = "spark_default",
        spark_conf: Mapping[str, Any] | None = None,
        max_cycles: int | None = None,
        outlets: Sequence[Asset] = (),
        **kwargs: Any,
    ) -> None:
        if following := [name for name in _FOLLOWING if name in kwargs]:
            raise SpecError(
                "LC8301", f"{following[0]} is for KafkaToIcebergOperator: a range has an end, so leave it out"
            )
        own: dict[str, Any] = {"max_records": max_records, "groups": groups}
        super().__init__(
            landing=landing_of(landing).changed(window={k: v for k, v in own.items() if v is not None}),
            spark_conn_id=spark_conn_id,
            spark_conf=spark_conf,
            max_cycles=max_cycles,
            outlets=outlets,
            **kwargs,
        )
        self.max_records = max_records
        self.yield_to_live = None if yield_to_live is None else span_of(yield_to_live, "yield_to_live")
        self.groups = groups
        self.ranges = ranges
        # The default is the data interval.
        self.since = None if ranges is not None else since
        self.until = None if ranges is not None else until
        self.lane = lane
        if is_stated(self.since, self.until, ranges, lane):
            self.request()

    def request(self) -> LaneRequest:
        """Return the requested range, with its templates filled.

        :raises SpecError: the range is invalid
        """
        from airflow_provider_lakecommit.operations import parse_ranges

        since, until = (_text(value) for value in (self.since, self.until))
        if since is not None and since == until:
            raise SpecError(
                "LC8302",
                f"since and until are both {since}: the data interval of a run is empty under the timetable of this "
                "DAG. Schedule it with CronDataIntervalTimetable or DeltaDataIntervalTimetable, or state both",
            )
        ranges = parse_ranges(texts_of(self.ranges), "ranges:")
        return lane_request(since=since, until=until, ranges=ranges, name=_text(self.lane), replaces=self.replaces)

    @contextmanager
    def session(self) -> Iterator[LandingSession]:
        """Return the backfill's session, or the landing's if nothing of the range is missing."""
        from airflow_provider_lakecommit.operations import lane_preview, live_first

        request = self.request()
        with super().session() as session:
            found = lane_preview(session, request)
            for line in found.lines():
                session.log(line)
            if found.removed:
                session.log(
                    f"{WARNING}{found.removed} of backfill {found.name} cannot be landed: the source has removed it"
                )
            if self._done(session, found):
                yield session
                return
            with self._lane(session, found) as own:
                if self.yield_to_live is not None:
                    own.yields = partial(live_first, session, self.yield_to_live)
                yield own

    def _done(self, session: LandingSession, found: LanePreview) -> bool:
        return found.done

    def _lane(self, session: LandingSession, found: LanePreview) -> AbstractContextManager[LandingSession]:
        from airflow_provider_lakecommit.operations import lane_session

        return lane_session(session, found)

    def _run(self, session: LandingSession, engine: Engine, context: Context) -> Closed:
        from airflow_provider_lakecommit.core import LIVE

        if session.lane == LIVE:
            return self._landed_before(session, context)
        return self._ended(session, super()._run(session, engine, context), context)

    def _goes_on(self, session: LandingSession, identity: RunIdentity, earlier: EarlierCycles) -> bool:
        """Return True if the backfill was reopened since for missing ranges, or is still open."""
        from airflow_provider_lakecommit.operations import lane_rest

        return bool(lane_rest(session))

    def _landed_before(self, session: LandingSession, context: Context) -> Closed:
        """Return what an attempt of this run landed before it died, or an empty result."""
        from airflow_provider_lakecommit.cycle import Closed
        from airflow_provider_lakecommit.operations import closed_lane

        if (in_events := self.in_events(context)) is not None:
            lane = closed_lane(session, self.request().name)
            if (found := without_event(lane, self.identity(context), in_events)) is not None:
                earlier, published = found
                self.log.info("all work is done already, but no asset event was sent: %s", earlier)
                return earlier.to_closed(self.landing.table, published)
        return Closed(commit_id=UUID(int=0), table=self.landing.table, reason=f"nothing of {self.request()} is missing")

    def _ended(self, session: LandingSession, whole: Closed, context: Context) -> Closed:
        from airflow_provider_lakecommit.operations import close_lane, lane_rest

        if rest := lane_rest(session):
            session.log(f"backfill {session.lane} stays open, {rest} is missing")
        else:
            close_lane(session)
        return whole

    def engine(self, lane: str = "") -> Engine:
        """Return the engine of the backfill."""
        return super().engine(lane or self.request().name)


def _text(value: str | datetime | None) -> str | None:
    """Return text for a template value that a run does not have."""
    text = value.isoformat() if isinstance(value, datetime) else None if value is None else str(value).strip()
    return None if text in ("", "None") else text
