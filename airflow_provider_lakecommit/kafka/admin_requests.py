# SPDX-License-Identifier: Apache-2.0
"""Send requests to a cluster: patiently, with one admin client, and with errors that name cause and remedy.

Contract: a request is answered within `timeout`. Until then it is repeated if a change in the cluster explains the
answer (an election, a broker that restarts, metadata in transit).

Failure story: brokers that do not answer raise the `away` error with the cause; brokers that reject the request raise
the `refused` error with the remedy; rejected credentials raise it at once. A topic that vanished or changed between two
requests is :class:`StaleTopicError`, after which :meth:`AdminRequests.steadily` starts again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, Generic, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.kafka.config import LastError, bootstrap_servers, made, unreachable
from airflow_provider_lakecommit.redaction import redacted

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

log = logging.getLogger(__name__)

POLL_SECONDS = 0.1
PAUSE_SECONDS = 0.05
SILENT_SECONDS = 3.0
"""Seconds after which a wait is logged with its reason."""
LOST_SECONDS = 5.0
"""Behind its own timeout, after which the client has lost a request."""
_LOST: list[AdminClient] = []
"""Clients that have lost a request. Nothing says that one can be closed without waiting for it for ever."""

_AGAIN = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_CACHE,
        KafkaError._WAIT_COORD,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)
DENIED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})


class StaleTopicError(Exception):
    """The topic has changed since the last request: everything about it must be requested again."""


class PendingAnswers(Generic[K, V]):
    """Requests that are in flight while the caller does something else. Nothing is repeated: a late answer or a
    rejection counts as unknown.
    """

    def __init__(self, futures: Mapping[K, Future[Any]], read: Callable[[Any], V]) -> None:
        self._futures = futures
        self._read = read

    def within(self, seconds: float) -> dict[K, V]:
        """Return the answers that arrive within that time."""
        wait(self._futures.values(), timeout=max(0.0, seconds))
        done = {key: f for key, f in self._futures.items() if f.done() and f.exception() is None}
        return {key: self._read(f.result()) for key, f in done.items()}


class AdminRequests:
    """One admin client, created at the first request.

    :param away: the error if the brokers do not answer.
    :param refused: the error if they reject a request.
    :param remedy: the remedy in that case.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        timeout: float,
        away: type[LakecommitError],
        refused: type[LakecommitError],
        remedy: Callable[[], str],
    ) -> None:
        self._config = config
        self._timeout = timeout
        self._away = away
        self._refused = refused
        self._remedy = remedy
        self._trouble = LastError(config.get("error_cb"))
        self._made: AdminClient | None = None
        self._silence_logged = False

    @property
    def _client(self) -> AdminClient:
        if self._made is None:
            self._made = made(AdminClient, self._config, self._trouble)
        return self._made

    def close(self) -> None:
        """Let go of the connections; a later question makes new ones."""
        self._made = None

    def steadily(self, doing: str, scan: Callable[[], T]) -> T:
        """Return the result of *look*, once the topics do not change during it."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return scan()
            except StaleTopicError as changed:
                if time.monotonic() >= deadline:
                    detail = f"the topic kept changing or has no leader: {changed}"
                    raise self._unanswered(doing, detail) from None
            self.serve(POLL_SECONDS)

    def serve(self, seconds: float) -> None:
        """Wait, and handle the client's callbacks meanwhile."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._client.poll(left)

    def _request(self, doing: str, request: Callable[[float], Mapping[K, Future[V]]]) -> dict[K, V | KafkaError]:
        """Return the answers, each a value or an error that a retry does not change."""
        self._trouble.forget()
        began = time.monotonic()
        deadline = began + self._timeout
        while True:
            futures = request(max(deadline - time.monotonic(), POLL_SECONDS))
            self._await(doing, futures.values(), began)
            answers: dict[K, V | KafkaError] = {key: _outcome(future) for key, future in futures.items()}
            hopeful = [a for a in answers.values() if isinstance(a, KafkaError) and a.code() in _AGAIN]
            if not hopeful:
                self._silence_logged = False
                return answers
            if time.monotonic() + PAUSE_SECONDS >= deadline:
                raise self._unanswered(doing, hopeful[0].str())
            self.serve(PAUSE_SECONDS)

    def _request_together(
        self, questions: Mapping[str, Callable[[float], Mapping[K, Future[V]]]]
    ) -> list[dict[K, V | KafkaError]]:
        """Return the answers to several requests that are in flight at the same time, by their description."""
        begun = {doing: request(self._timeout) for doing, request in questions.items()}

        def once(doing: str, left: float) -> Mapping[K, Future[V]]:
            return begun.pop(doing, None) or questions[doing](left)

        return [self._request(doing, partial(once, doing)) for doing in questions]

    def _await(self, doing: str, futures: Iterable[Future[Any]], began: float) -> None:
        pending = set(futures)
        while pending:
            pending = wait(pending, timeout=POLL_SECONDS).not_done
            self._client.poll(0)
            if pending and self._trouble.denied:
                raise self._unanswered(doing)
            waited = time.monotonic() - began
            if pending and waited >= SILENT_SECONDS:
                self._log_silence(doing)
            if pending and waited >= self._timeout + LOST_SECONDS:
                # librdkafka answers each request within its timeout, if only by an error. Rarely one gets no answer.
                _LOST.append(self._client)
                self.close()
                detail = "the client lost the request"
                raise unreachable(self._away, doing, self._config, self._trouble, waited, detail)

    def _unanswered(self, doing: str, detail: str = "") -> LakecommitError:
        return unreachable(self._away, doing, self._config, self._trouble, self._timeout, detail)

    def _log_silence(self, doing: str) -> None:
        """Once, until the brokers answer again."""
        if not self._silence_logged:
            self._silence_logged = True
            cause = redacted(self._trouble.cause or "no reason was given", self._config)
            servers = bootstrap_servers(self._config)
            log.warning("%s: no answer from Kafka at %s yet: %s; waiting for it", doing, servers, cause)

    def _granted(self, doing: str, answer: V | KafkaError) -> V:
        if not isinstance(answer, KafkaError):
            return answer
        remedy = self._remedy() if answer.code() in DENIED else "check the name"
        raise self._refused(
            "LC2012", f"{doing}: Kafka at {bootstrap_servers(self._config)} reports: {answer.str()}; {remedy}"
        )


def _outcome(future: Future[Any]) -> Any:
    """The value, or the broker's objection; anything else is a defect and is raised."""
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, KafkaException) and isinstance(error.args[0], KafkaError):
        return error.args[0]
    raise error
