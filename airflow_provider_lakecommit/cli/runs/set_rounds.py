# SPDX-License-Identifier: Apache-2.0
"""Land the landings of a set round after round, in one process.

A round lands each landing as if it were alone, with the topics of that time, and waits a limited time for slow ones:
they continue alongside later rounds, which skip them, so none blocks another. A landing that is caught up opens a cycle
only every few minutes, to advance its tables' valid-through time. A round is skipped if its topics cannot be listed.
Connections are recreated when the topics change; old ones are closed once unused.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from uuid import uuid4

from airflow_provider_lakecommit.cli.runs.process import identity, is_dead
from airflow_provider_lakecommit.cli.runs.set_landings import Landings
from airflow_provider_lakecommit.cli.terminal.output import Exit
from airflow_provider_lakecommit.core import SourcePartition
from airflow_provider_lakecommit.cycle import (
    IDLE,
    Expansion,
    FormerLanding,
    SetConnections,
    close_cycle,
    former_landings,
    found_landings,
    landing_ready,
    landings_to_publish,
    start_former,
    without_records,
)
from airflow_provider_lakecommit.exceptions import ClosedError, LakecommitError, SourceError
from airflow_provider_lakecommit.iceberg import Tables
from airflow_provider_lakecommit.landing import Landing, LandingSetSpec
from airflow_provider_lakecommit.spark import CLI

CATALOG = "catalog"
Ended = dict[str, int | BaseException]


class SetRounds:
    """The rounds of one process.

    :param tables: the catalog; its owner closes it
    :param check: raises if the exception of a signal was lost
    """

    def __init__(self, spec: LandingSetSpec, landings: Landings, tables: Tables, check: Callable[[], None]) -> None:
        self._spec, self._landings, self._tables, self._check = spec, landings, tables, check
        self._connections: SetConnections | None = None
        self._expansion: Expansion | None = None
        self._used: list[SetConnections] = []
        self._under_way: dict[str, SetConnections] = {}
        self._ended: Ended = {}
        self._rounds: list[threading.Thread] = []
        self._whole: dict[str, tuple[Mapping[SourcePartition, int], float]] = {}
        self._logged: set[str] = set()
        self._publishing = False

    def land(self, expansion: Expansion, seconds: float | None = None) -> Ended:
        """Run one round; return how each landing ended, now or before.

        :param seconds: limit of the wait for slow landings; by default until they end
        """
        other = self._expansion is None or self._expansion.known != expansion.known
        connections = self._connected(expansion)
        former, unreadable = self._former(connections) if other or self._publishing else ((), {})
        publishes = landings_to_publish(former)
        self._publishing = bool(unreadable or publishes)
        # A round is a run of its own: it does not open cycles again that an earlier one has closed.
        self._landings.unique = uuid4()
        names = [each.name for each in expansion.landings]
        own = [each for each in expansion.landings if each.name not in self._under_way]
        works = {
            each.name: partial(self._recorded, each.name, partial(do, connections, each))
            for do, some in ((self._landed, own), (self._publish, publishes))
            for each in some
        }
        names += [each.name for each in publishes]
        self._under_way |= dict.fromkeys(works, connections)
        thread = threading.Thread(target=self._work, args=(works,), name="lakecommit-round", daemon=True)
        self._rounds = [each for each in self._rounds if each.is_alive()] + [thread]
        thread.start()
        thread.join(seconds)
        self._check()
        for topic in expansion.ignored:
            self._log_once(f"topic {topic} matches no rule and is ignored, as `unmatched` says")
        for each in former:
            self._log_once(f"WARNING: {each}")
        ended: Ended = {name: self._ended[name] for name in names if name in self._ended}
        # A topic without a landing has only its name.
        return (
            ended
            | {**unreadable}
            | {f"topics {', '.join(t.topics)}": SourceError("LC8031", t.why) for t in expansion.troubles}
        )

    def again(self, before: Ended, seconds: float) -> Ended:
        """Run a round with the current topics; it is skipped if the brokers do not list them."""
        try:
            ended = self.land(found_landings(self._spec.landing_set, self._spec.kafka), seconds)
        except LakecommitError as e:
            self._landings.output.log(f"WARNING: {e}")
            return before
        self.report(ended, before)
        return ended

    def finish(self, ended: Ended) -> Ended:
        for thread in self._rounds:
            thread.join()
        self._check()
        return ended | {name: each for name, each in self._ended.items() if name in ended}

    def report(self, ended: Ended, before: Ended) -> None:
        """Log failures that are new since the round before, and those that ended."""
        errors = {name: str(each) for name, each in before.items() if isinstance(each, BaseException)}
        for name, each in ended.items():
            if isinstance(each, BaseException) and errors.get(name) != str(each):
                self._landings.output.error(each, of=name)
            elif not isinstance(each, BaseException) and name in errors:
                self._landings.output.log(f"{name}: it no longer fails")

    def close(self) -> None:
        for each in self._used:
            each.close()

    def _work(self, works: Mapping[str, Callable[[], int]]) -> None:
        try:
            # Landings that did not start because of a stop are reported only there.
            self._ended |= self._landings.concurrent.run(works)
        except BaseException as e:
            self._ended |= {name: e for name in works if name in self._under_way}
        finally:
            for name in works:
                self._under_way.pop(name, None)

    def _recorded(self, name: str, work: Callable[[], int]) -> int:
        """Run the work of a landing in a thread of its own, and keep how it ended."""
        try:
            self._ended[name] = code = work()
        except BaseException as e:
            self._ended[name] = e
            raise
        finally:
            self._under_way.pop(name, None)
        return code

    def _landed(self, connections: SetConnections, landing: Landing) -> int:
        if self._landings.stopped:
            raise ClosedError("LC8032", "this call was stopped: the next one continues")
        marks = connections.marks(landing)
        whole = self._whole.get(landing.name)
        if marks and whole is not None and whole[0] == marks and time.monotonic() - whole[1] < IDLE.total_seconds():
            return 0
        made = landing_ready(self._spec.landing_set, landing, self._spec.kafka, self._tables, connections)
        if made is None:
            self._log_once(f"{landing.name}: {without_records(landing)}")
            return 0
        code = self._landings.land(self._spec.of(made), connections.session)
        if code == 0:
            self._whole[landing.name] = marks, time.monotonic()
        return code

    def _publish(self, connections: SetConnections, landing: Landing) -> int:
        run = identity(self._landings.unique)
        with connections.session(landing, self._landings.log_of(landing.name)) as session:
            opened = start_former(session, run, is_dead)
            closed = close_cycle(session, run, opened.ticket, executor=self._landings.concurrent.executor)
        self._landings.output.log(f"{landing.name}: {closed}")
        return Exit.REFUSED if closed.waiting or closed.blocked else Exit.DONE

    def _former(self, connections: SetConnections) -> tuple[Sequence[FormerLanding], Mapping[str, BaseException]]:
        try:
            return former_landings(self._spec.landing_set, connections, self._landings.output.log)
        except LakecommitError as e:
            self._landings.output.log(f"WARNING: cannot find former landings of the set: {e}")
            return (), {}

    def _log_once(self, line: str) -> None:
        if line not in self._logged:
            self._logged.add(line)
            self._landings.output.log(line)

    def _connected(self, expansion: Expansion) -> SetConnections:
        """Return the connections, recreated if the topics changed."""
        for old in [each for each in self._used if each not in self._under_way.values()]:
            if old is not self._connections:
                self._used.remove(old)
                old.close()
        if self._connections is None or self._expansion is None or self._expansion.topics != expansion.topics:
            spec = self._spec
            self._connections = SetConnections(
                spec.landing_set, expansion, spec.kafka, self._tables, deployment=CLI, catalog_key=CATALOG
            )
            self._used.append(self._connections)
        self._connections.expansion = self._expansion = expansion
        return self._connections
