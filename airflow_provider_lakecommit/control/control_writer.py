# SPDX-License-Identifier: Apache-2.0
"""Writes to one partition of the control topic, in transactions under one transactional id.

:meth:`ControlWriter.send` writes all of its records or none. Everything possible is done before the transaction begins,
because an open one blocks every reader of the partition. :meth:`ControlWriter.open` ends what an earlier process left
open under the same id and fences that process: only the writer that was opened last can commit.

A transaction that ends without a commit (a broker restart, a lost leader) is aborted and sent again until `timeout`. A
fenced writer raises :class:`FencedError`. A requested commit without an answer is a :class:`ControlTopicError` that
says that the outcome is unknown; only the log has it. After other errors the client is discarded.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from airflow_provider_lakecommit.control.records import Outgoing
from airflow_provider_lakecommit.exceptions import ControlTopicError, FencedError, LakecommitError, WireError
from airflow_provider_lakecommit.kafka import LastError, bootstrap_servers, made, unreachable
from airflow_provider_lakecommit.signing import Place, SigningKeys

log = logging.getLogger(__name__)

DEFAULT_MAX_BYTES = 1_000_000
# What a record has around key, value and headers on the wire, generously.
RECORD_OVERHEAD = 96
HEADER_OVERHEAD = 10
SIGNATURE_BYTES = 128

# Long enough for a commit, short enough to notice refused credentials in between.
STEP_SECONDS = 1.0
PAUSE_SECONDS = 0.2
GOODBYE_SECONDS = 5.0
_FENCED = frozenset({KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED})
_HOPELESS = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.INVALID_RECORD,
        KafkaError.POLICY_VIOLATION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)


def check_sizes(records: Sequence[Outgoing], where: str, limit: int, *, signed: bool) -> None:
    """Raise if a record is larger than the client accepts; generous, so that sizes never end an open transaction."""
    for key, value, headers in records:
        around = sum(len(name) + len(content) + HEADER_OVERHEAD for name, content in headers) + RECORD_OVERHEAD
        size = len(key) + len(value) + around + (SIGNATURE_BYTES if signed else 0)
        if size > limit:
            raise WireError(
                "LC2364",
                f"a record for {where} has {size} bytes, the limit is {limit}: raise message.max.bytes of the "
                "connection and max.message.bytes of the topic",
            )


class Deliveries:
    """The broker's answer to each record of a transaction; the first failure is kept."""

    def __init__(self, count: int) -> None:
        self._offsets: list[int | None] = [None] * count
        self.failure: KafkaError | None = None

    def note(self, index: int) -> Callable[[KafkaError | None, Message], None]:
        def noted(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self._offsets[index] = message.offset()
            elif self.failure is None:
                self.failure = error

        return noted

    @property
    def offsets(self) -> tuple[int, ...]:
        return tuple(offset for offset in self._offsets if offset is not None)

    @property
    def complete(self) -> bool:
        return None not in self._offsets


class _AbortedError(Exception):
    """The transaction ended without a commit, so it may be sent again."""


class ControlWriter:
    """One transactional producer, opened at its first use; a context manager, for one thread."""

    def __init__(
        self,
        topic: str,
        config: Mapping[str, Any],
        transactional_id: str,
        partition: int,
        *,
        transaction_timeout: float = 10.0,
        timeout: float = 30.0,
    ) -> None:
        self._topic = topic
        self._config = config
        self._id = transactional_id
        self._partition = partition
        self._transaction_timeout = transaction_timeout
        self._timeout = timeout
        self._trouble = LastError(config.get("error_cb"))
        self._keys = SigningKeys.of(config)
        self._cluster_id = ""
        self._producer: Producer | None = None
        self._began = False

    # -- life ---------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Fence earlier writers of this id, and end their open transaction. Does nothing if open."""
        try:
            self._opened(time.monotonic() + self._timeout)
        except LakecommitError as e:
            raise _frameless(e) from None

    def close(self) -> None:
        """Abort an open transaction, so that no reader waits for it, and disconnect."""
        producer, self._producer = self._producer, None
        if producer is not None and self._began:
            self._began = False
            with suppress(KafkaException):
                producer.abort_transaction(GOODBYE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- sending ------------------------------------------------------------------------------------------------------

    def send(self, records: Sequence[Outgoing]) -> tuple[int, ...]:
        """Write records in one transaction, and return their offsets.

        :raises WireError: a record is larger than client or broker accept
        :raises FencedError: a later writer of the same id took over
        :raises ControlTopicError: not written; or, as its text then says, the outcome is unknown
        """
        limit = int(self._config.get("message.max.bytes", DEFAULT_MAX_BYTES))
        check_sizes(records, self._where, limit, signed=self._keys is not None)
        try:
            return self._sent(records, time.monotonic() + self._timeout)
        except LakecommitError as e:
            raise _frameless(e) from None

    def _sent(self, records: Sequence[Outgoing], deadline: float) -> tuple[int, ...]:
        while True:
            producer = self._opened(deadline)
            signed = self._signed(producer, records)
            try:
                return self._transaction(producer, signed, deadline)
            except _AbortedError as aborted:
                if time.monotonic() + PAUSE_SECONDS >= deadline:
                    raise self._gave_up(str(aborted)) from None
                log.info("Transaction %s on %s was aborted; sending it again: %s", self._id, self._where, aborted)
            time.sleep(PAUSE_SECONDS)

    def _signed(self, producer: Producer, records: Sequence[Outgoing]) -> Sequence[Outgoing]:
        if self._keys is None:
            return records
        try:
            self._cluster_id = self._cluster_id or producer.list_topics(self._topic, self._timeout).cluster_id or ""
        except KafkaException as failure:
            raise self._gave_up(failure.args[0].str()) from None
        location = Place(cluster_id=self._cluster_id, topic=self._topic, partition=self._partition)
        return [Outgoing(k, v, (*headers, self._keys.signature(location, k, v, headers))) for k, v, headers in records]

    def _transaction(self, producer: Producer, records: Sequence[Outgoing], deadline: float) -> tuple[int, ...]:
        deliveries = Deliveries(len(records))
        self._trouble.forget()
        try:
            producer.begin_transaction()
            self._began = True
            for index, (key, value, headers) in enumerate(records):
                noted = deliveries.note(index)
                producer.produce(self._topic, value, key, self._partition, on_delivery=noted, headers=list(headers))
            self._patiently(producer.commit_transaction, deadline)
            self._began = False
        except BufferError as full:
            self._abort(producer, deadline)
            raise WireError(
                "LC2331", f"{len(records)} records do not fit into the client's queue: {full}; send fewer"
            ) from None
        except KafkaException as failure:
            raise self._interpreted(producer, _error_of(failure), deliveries, deadline) from None
        return deliveries.offsets

    def _interpreted(
        self, producer: Producer, error: KafkaError, deliveries: Deliveries, deadline: float
    ) -> LakecommitError | _AbortedError:
        """Return the meaning of a failed transaction for the caller."""
        if error.code() in _FENCED:
            self._discard()
            return self._fenced()
        if deliveries.complete and not error.txn_requires_abort():
            self._discard()
            return self._unknown(error)
        cause = deliveries.failure if deliveries.failure and error.code() == KafkaError._INCONSISTENT else error
        if cause.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            # Nor may it be aborted, and the client would ask for that without a pause: it ends by its timeout.
            self._discard()
        else:
            self._abort(producer, deadline)
        if cause.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return WireError(
                "LC2332",
                f"a record for {self._where} is larger than the broker takes: {cause.str()}; "
                "raise max.message.bytes of the topic",
            )
        if cause.code() in _HOPELESS:
            return self._refused(cause)
        return _AbortedError(cause.str())

    def _abort(self, producer: Producer, deadline: float) -> None:
        try:
            self._patiently(producer.abort_transaction, deadline)
        except KafkaException as failure:
            self._discard()
            error = _error_of(failure)
            if error.code() in _FENCED:
                raise self._fenced() from None
            # The broker forgot the transaction or is away: it ends by its timeout, or when the next producer opens.
            log.debug("Could not abort the transaction of %s: %s", self._id, error.str())
        self._began = False

    def _patiently(self, step: Callable[[float], None], deadline: float) -> None:
        """Repeat a step of the transaction protocol until it succeeds, is refused, or time is over."""
        while True:
            try:
                step(max(min(STEP_SECONDS, deadline - time.monotonic()), 0.1))
                return
            except KafkaException as failure:
                error = failure.args[0]
                stop = error.fatal() or error.txn_requires_abort() or not error.retriable() or self._trouble.denied
                if stop or time.monotonic() >= deadline:
                    raise

    # -- opening ------------------------------------------------------------------------------------------------------

    def _opened(self, deadline: float) -> Producer:
        if self._producer is None:
            self._trouble.forget()
            producer = made(
                Producer,
                {"compression.type": "zstd", "topic.metadata.propagation.max.ms": 5000, **self._config},
                self._trouble,
                **{
                    "transactional.id": self._id,
                    "transaction.timeout.ms": int(self._transaction_timeout * 1000),
                    "enable.idempotence": True,
                },
            )
            self._initialise(producer, deadline)
            self._producer = producer
        return self._producer

    def _initialise(self, producer: Producer, deadline: float) -> None:
        def step(seconds: float) -> None:
            try:
                producer.init_transactions(seconds)
            finally:
                producer.poll(0)

        # A client that asks for its coordinator while it swaps the bootstrap connection for one to a broker rests for
        # half a second then. The first answer starts the swap, the second arrives after it.
        with suppress(KafkaException):
            producer.list_topics(self._topic, STEP_SECONDS)
            producer.list_topics(self._topic, STEP_SECONDS)
        try:
            self._patiently(step, deadline)
        except KafkaException as failure:
            error = _error_of(failure)
            if error.code() in _HOPELESS:
                raise self._refused(error) from None
            doing = f"opening transactional id {self._id!r}"
            raise unreachable(
                ControlTopicError, doing, self._config, self._trouble, self._timeout, error.str()
            ) from None

    def _discard(self) -> None:
        self._producer = None
        self._began = False

    # -- errors -------------------------------------------------------------------------------------------------------

    @property
    def _where(self) -> str:
        return f"{self._topic}[{self._partition}]"

    def _fenced(self) -> FencedError:
        return FencedError(
            "LC2333",
            f"transactional id {self._id!r} was taken over by a later writer, or its transaction was open for more "
            f"than {self._transaction_timeout:.0f} s: this attempt is superseded; read {self._where} again",
        )

    def _unknown(self, error: KafkaError) -> ControlTopicError:
        return ControlTopicError(
            "LC2334",
            f"a transaction of {self._id!r} on {self._where} at {bootstrap_servers(self._config)} was sent and its "
            f"outcome is unknown: {self._trouble.cause or error.str()}; read the log to learn whether it is there",
        )

    def _gave_up(self, cause: str) -> ControlTopicError:
        return ControlTopicError(
            "LC2335",
            f"nothing was written to {self._where} at {bootstrap_servers(self._config)} within {self._timeout:.0f} s: "
            f"{self._trouble.cause or cause}; try again when the brokers are up",
        )

    def _refused(self, error: KafkaError) -> ControlTopicError:
        return ControlTopicError(
            "LC2336",
            f"nothing was written to {self._where} at {bootstrap_servers(self._config)}: {error.str()}; the topic must "
            f"exist, and this principal needs WRITE on it and WRITE and DESCRIBE on transactional id {self._id!r}",
        )


def _frameless(error: LakecommitError) -> LakecommitError:
    """Return the error without its frames, which would keep the client alive for as long as the error is kept."""
    return error.with_traceback(None)


def _error_of(failure: KafkaException) -> KafkaError:
    """Return the error without its frames, for the same reason."""
    failure.__traceback__ = None
    error: KafkaError = failure.args[0]
    return error
