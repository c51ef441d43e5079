# SPDX-License-Identifier: Apache-2.0
"""Window jobs on a warm Spark Connect server.

Contract: each stream of a landing has one session on a server, shared by all processes of a deployment, so that its
Python workers stay warm. A job is one operation of the session, with an id made of commit id, group and round. It
survives its client: a later attempt finds the newest round of its group, and *adopts* it if it still runs, which means
it waits for the end instead of repeating the work. The plan of a cycle never changes; if the landing now reads records
differently, the round is ended and its unreported part is redone. Ownership moves along: the newest attempt writes its
name into the session, and only the owner ends an operation. An attempt that is stopped after its work was adopted
leaves the work alone.

The tasks run the client's version of this package: each task that begins a session sends it once, and another version
has another session. Connection settings travel only with the operation.

Failure story: work that cannot be adopted is redone: the control topic has the reported slices, so no result depends on
finding an operation. A server that is unavailable, restarted, or gave up an operation is a
:class:`~airflow_provider_lakecommit.exceptions.SparkJobError` after a few seconds. A stopped job loses the slices in
progress.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4, uuid5

from airflow_provider_lakecommit.exceptions import SparkJobError, SpecError
from airflow_provider_lakecommit.spark.job import note_running
from airflow_provider_lakecommit.spark.launch.base import AHEAD, EarlierWorkError
from airflow_provider_lakecommit.spark.launch.connect_client import ConnectClient, FailureKind, SparkConnectError
from airflow_provider_lakecommit.spark.launch.connect_task import plan_of, results_of
from airflow_provider_lakecommit.spark.launch.connect_url import ConnectUrl
from airflow_provider_lakecommit.spark.launch.package import package_digest, package_zip
from airflow_provider_lakecommit.spark.window import workers_died

if TYPE_CHECKING:
    from airflow_provider_lakecommit.spark.job import Secrets, SliceResult, WindowJob

SESSIONS = UUID("6f2f6a0e-6a0c-5a3f-9f7b-0b9f6f4f5f31")
"""Namespace of session ids."""
MOST_SESSIONS = 1000
"""Closed sessions of a landing to try before the usable one: a server remembers this many of all."""
MOST_ROUNDS = 100
RECONNECT_SECONDS = 5.0
RECONNECT_PAUSE = 0.25
STOP_SECONDS = 3.0
"""How long :meth:`ConnectEngine.stop` waits for the server's answer."""
PACKAGE_KEY = "lakecommit.package"
POOL_KEY = "spark.scheduler.pool"


@dataclass(slots=True, kw_only=True, eq=False)
class _Round:
    """An operation for a group of a cycle, with the attempt that waits for it. The session has an entry on the newest
    one of each group. A replica has rounds of its own, which attempts at that replica adopt.
    """

    job: WindowJob
    number: int
    attempt: str
    spec: str
    ended: bool = False
    results: list[SliceResult] = field(default_factory=list)

    @property
    def operation(self) -> UUID:
        return uuid5(self.job.commit_id, f"{_share(self.job)}/{self.number}")

    def entry(self, *, ended: bool = False) -> dict[str, str]:
        """Return the setting of the session that names it."""
        return {_key(self.job): f"{self.number} {self.attempt} {self.spec}{' ended' if ended else ''}"}


class ConnectEngine:
    """The session of one stream of a landing on a server.

    :param url: `sc://host:port/;…`, as Spark's own clients read it
    :param deployment: the landing's deployment; deployments on the same server do not share sessions
    """

    ahead = AHEAD

    def __init__(self, url: str, *, deployment: str, landing: str, lane: str = "live") -> None:
        self._url = ConnectUrl.parse(url)
        self._name = f"{landing}/{lane}"
        self._family = uuid5(SESSIONS, "/".join((deployment, landing, lane, package_digest())))
        self._attempt = uuid4().hex
        self._client: ConnectClient | None = None
        self._running: list[_Round] = []
        self._lock = threading.Lock()
        self._stopped = False

    def start(self) -> None:
        """Start a session that knows this package.

        :raises SparkJobError: the server cannot be reached
        :raises SpecError: the server refuses the connection
        """
        with self._lock, self._explained():
            if self._client is not None:
                with suppress(SparkConnectError):
                    if PACKAGE_KEY in self._client.settings(PACKAGE_KEY):
                        return
                self._client.close()
            self._client = self._session()

    def run(self, job: WindowJob, secrets: Secrets) -> list[SliceResult]:
        """Run a job to its end, or wait for the end of an earlier attempt's job of its group.

        :raises EarlierWorkError: earlier work was awaited, and may not have done all of the job
        :raises SparkJobError: the job ended early, or was stopped
        :raises SpecError: the settings cannot be sent, or the server refuses the connection
        """
        if self._client is None:
            self.start()
        with self._explained(f"the Spark job of group {job.group}, {job.plan.coverage}, ended early"):
            newest = self._newest(job)
            if newest is None:
                return self._begin(job, secrets, 0)
            if newest.spec != job.landing.spec_version:
                # Also if another attempt still waits for it, which then finds it ended.
                with suppress(SparkConnectError):
                    self._calls.interrupt(newest.operation)
            elif not newest.ended and (found := self._adopt(job, newest.number)) is not None:
                return found
            return self._begin(job, secrets, newest.number + 1)

    def stop(self) -> None:
        """End the jobs of this engine except those that another attempt owns; start none afterwards. Returns when the
        server has answered, or after 3 s.
        """
        self._stopped = True
        # In another thread: the signal may have interrupted a call of this one.
        interrupting = threading.Thread(target=self._interrupt_all, name="lakecommit-stop", daemon=True)
        interrupting.start()
        interrupting.join(STOP_SECONDS)

    def close(self) -> None:
        """Close the connection, and end unneeded replicas that still run. The session stays on the server, with its
        workers, for the next run.
        """
        if self._running:
            self.stop()
        if self._client is not None:
            self._client.close()
            self._client = None

    # -- the session --------------------------------------------------------------------------------------------------

    def _session(self) -> ConnectClient:
        """Return the first open session of the family; all processes find the same."""
        for number in range(MOST_SESSIONS):
            client = ConnectClient(self._url, uuid5(self._family, str(number)))
            try:
                if PACKAGE_KEY not in client.settings(PACKAGE_KEY):
                    # The attempt is in the name: the tasks of a window may all find a session without the package, and
                    # a server fails one of two concurrent uploads of one name.
                    name = f"airflow_provider_lakecommit-{package_digest()}-{self._attempt}.zip"
                    client.add_python_file(name, package_zip())
                    client.set({PACKAGE_KEY: package_digest(), POOL_KEY: f"lakecommit/{self._name}"})
                return client
            except SparkConnectError as e:
                client.close()
                if e.kind is not FailureKind.SESSION_OVER:
                    raise
        raise SparkJobError("LC5009", f"{self._url} has closed {MOST_SESSIONS} sessions of {self._name}: restart it")

    # -- operations ---------------------------------------------------------------------------------------------------

    def _adopt(self, job: WindowJob, number: int) -> list[SliceResult] | None:
        """Wait for an earlier attempt's operation; return ``None`` if there is none."""
        run = self._round(job, number)
        try:
            self._wait(run, lambda: self._calls.listen(run.operation))
        except SparkConnectError as e:
            if self._stopped or e.kind in (FailureKind.AWAY, FailureKind.REFUSED, FailureKind.TAKEN_OVER):
                raise
            if e.kind in (FailureKind.UNKNOWN, FailureKind.OVER):
                return None
            # It was cancelled, has failed, or cannot be followed. If it still runs, it is only in the way.
            with suppress(SparkConnectError):
                self._calls.interrupt(run.operation)
        mine = {str(s) for s in job.plan.slices}
        results = [r for r in run.results if r.slice in mine]
        complete = {r.slice for r in results if r.status.is_final} == mine
        self._finish(run, complete=complete)
        if not complete:
            raise EarlierWorkError(
                "LC5010",
                f"an earlier attempt's Spark job of group {job.group} has ended without finishing all of the group",
            )
        return results

    def _begin(self, job: WindowJob, secrets: Secrets, first: int) -> list[SliceResult]:
        plan = plan_of(job, secrets)
        # By these, a user finds and interrupts operations.
        tags = ["lakecommit", f"landing={job.plan.landing}", f"commit={job.commit_id}", f"group={job.group}"]
        for number in range(first, first + MOST_ROUNDS):
            run = self._round(job, number)
            try:
                self._wait(run, partial(self._calls.execute, run.operation, plan, tags))
            except SparkConnectError as e:
                if e.kind is FailureKind.OVER and not run.results:
                    continue
                if e.kind not in (FailureKind.AWAY, FailureKind.TAKEN_OVER):
                    self._finish(run, complete=False)
                raise
            self._finish(run, complete=all(r.status.is_final for r in run.results))
            return run.results
        raise SparkJobError(
            "LC5011", f"group {job.group} of cycle {job.commit_id} was tried {MOST_ROUNDS} times on this server"
        )

    def _wait(self, run: _Round, begin: Callable[[], Iterator[Any]]) -> None:
        """Own an operation and read its results up to the last one; an interrupted caller ends it."""
        self._running.append(run)
        try:
            if self._stopped:
                raise SparkJobError("LC5012", "it was stopped before it began")
            self._calls.set(run.entry())
            self._follow(run, begin())
        except SparkConnectError:
            raise
        except BaseException:
            self._interrupt(run)
            raise
        finally:
            self._running.remove(run)
            note_running((run.job.commit_id, run.job.group), None)

    def _follow(self, run: _Round, results: Iterator[Any]) -> None:
        """Read results across ends of streams and short losses of the connection."""
        last, lost_at = None, None
        while True:
            try:
                for result in results:
                    last, lost_at = result.response_id, None
                    if result.HasField("execution_progress"):
                        share = run.job.commit_id, run.job.group
                        note_running(share, result.execution_progress.num_inflight_tasks)
                    if result.HasField("arrow_batch"):
                        run.results += results_of(result.arrow_batch.data)
                    if result.HasField("result_complete"):
                        return
                    if self._stopped:
                        # The interrupt may have come before the server knew the operation.
                        raise SparkJobError("LC5013", "it was stopped")
            except SparkConnectError as e:
                now = time.monotonic()
                lost_at = lost_at or now
                if e.kind is not FailureKind.AWAY or self._stopped or now - lost_at > RECONNECT_SECONDS:
                    raise
                time.sleep(RECONNECT_PAUSE)
            results = self._calls.listen(run.operation, after=last)

    def _finish(self, run: _Round, *, complete: bool) -> None:
        """Let the server forget an ended operation, and record for later attempts that nothing runs."""
        with suppress(SparkConnectError):
            if complete:
                self._calls.unset(_key(run.job))
            else:
                self._calls.set(run.entry(ended=True))
            self._calls.release(run.operation)

    def _interrupt_all(self) -> None:
        for run in tuple(self._running):
            self._interrupt(run)

    def _interrupt(self, run: _Round) -> None:
        """End an operation that this attempt still owns."""
        with suppress(SparkConnectError, SparkJobError):
            newest = self._newest(run.job)
            if newest is not None and newest.attempt == self._attempt:
                self._calls.interrupt(run.operation)

    def _newest(self, job: WindowJob) -> _Round | None:
        """Return the newest round of a job's group, as the session names it."""
        found = self._calls.settings(_key(job)).get(_key(job))
        if found is None:
            return None
        number, attempt, spec, *ended = found.split()
        return _Round(job=job, number=int(number), attempt=attempt, spec=spec, ended=bool(ended))

    def _round(self, job: WindowJob, number: int) -> _Round:
        return _Round(job=job, number=number, attempt=self._attempt, spec=job.landing.spec_version)

    @property
    def _calls(self) -> ConnectClient:
        if self._client is None:
            raise SparkJobError("LC5014", "the Spark Connect session is not started")
        return self._client

    @contextmanager
    def _explained(self, what: str = "") -> Iterator[None]:
        try:
            yield
        except SparkConnectError as e:
            text = f"{what}: {e.meaning}" if what else e.meaning
            if e.kind is FailureKind.REFUSED:
                raise SpecError("LC5015", text) from e
            raise SparkJobError("LC5016", text, workers_died=workers_died(text)) from e


def _key(job: WindowJob) -> str:
    return f"lakecommit.{job.commit_id}.{_share(job)}"


def _share(job: WindowJob) -> str:
    return f"{job.group}-{job.replica}" if job.replica else str(job.group)
