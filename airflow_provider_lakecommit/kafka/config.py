# SPDX-License-Identifier: Apache-2.0
"""Convert a user's librdkafka configuration to that of a client, and a client's failure to an error text.

Contract: a configuration is a plain mapping of librdkafka names. The user defines where the brokers are and how to
reach them; the meaning of a read or a transaction is fixed, so those keys of the user are dropped, with a note in the
log if they differ. Error texts name `bootstrap.servers` and the last failure of the client, never the value of a
secret.

Failure story: librdkafka answers a request to dead brokers with "timed out"; only its error callback gets the cause.
:class:`LastError` is that callback, so a message can say "connection refused", "name not known" or "invalid password".
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from airflow_provider_lakecommit.core import connection_suffix
from airflow_provider_lakecommit.exceptions import LakecommitError, SpecError
from airflow_provider_lakecommit.redaction import redacted, without
from airflow_provider_lakecommit.signing import PREFIX

log = logging.getLogger(__name__)

C = TypeVar("C")

# These define our reads and transactions. A user's value would lose or duplicate records, or move offsets that belong
# to other clients.
_OURS = frozenset(
    {
        "acks",
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "auto.offset.reset",
        "delivery.report.only.error",
        "delivery.timeout.ms",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "enable.partition.eof",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "isolation.level",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "message.send.max.retries",
        "message.timeout.ms",
        "request.required.acks",
        "retries",
        "transaction.timeout.ms",
        "transactional.id",
    }
)

# What a user may change. The pause before connecting is short, since a new client waits for it too, and capped low: a
# broker's restart is to be noticed.
_DEFAULTS: dict[str, Any] = {
    "client.id": "lakecommit",
    "socket.keepalive.enable": True,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 1000,
    "log_level": 3,
}

_SCHEME = re.compile(r"(?:^|,)\s*([^,:/]+)://")
_PROTOCOLS = frozenset({"plaintext", "ssl", "sasl_plaintext", "sasl_ssl"})
_PARTS = ("SASL", "SSL")
"""Of a protocol, in upper case, and how the settings begin that apply only with it."""
_NOISE = re.compile(r"\s*\(after \d+ms in state \w+(, \d+ identical error\(s\) suppressed)?\)")
_CLOSED = (
    "brokers accept connections and close them at once: they may need a login or TLS that the settings lack "
    "(`security.protocol`, `sasl.mechanism`), or are shutting down"
)


class LastError:
    """The last error that a client reported by itself; used as its error callback.

    A consumer must have a group, and requests its coordinator although ours join none. Without rights on groups this is
    rejected, which does no harm.

    :param also: the user's own callback, which gets everything too.
    """

    def __init__(self, also: Callable[[KafkaError], object] | None = None) -> None:
        self._also = also
        self._last: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return
        # "All brokers are down" follows every other error and is less specific.
        if self._last is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._last = error
        log.debug("Kafka client: %s", error)
        if self._also is not None:
            self._also(error)

    def forget(self) -> None:
        """Forget the last error before a new request: it may be over."""
        self._last = None

    @property
    def denied(self) -> bool:
        """Return True if the brokers rejected these credentials: waiting does not help."""
        return self._last is not None and self._last.code() == KafkaError._AUTHENTICATION

    @property
    def cause(self) -> str | None:
        """Return the last reported error, or None."""
        if self._last is None:
            return None
        # A connection that is refused, or a name that is not known, is reported before all brokers are down.
        closed = self._last.code() == KafkaError._ALL_BROKERS_DOWN
        return _CLOSED if closed else _NOISE.sub("", self._last.str())


class _ToDebug:
    """Takes the client's own log lines, for a debugger: every failure that matters reaches the caller as an error."""

    def log(self, level: int, message: str, *args: object) -> None:
        log.debug(message, *args)


def client_config(config: Mapping[str, Any], trouble: LastError, **ours: Any) -> dict[str, Any]:
    """The configuration of one client.

    :param ours: what this client needs by its role, as ``**{"group.id": …}``; wins over everything.
    :raises SpecError: no `bootstrap.servers`, or settings of a login or of TLS that the client would ignore
    """
    _check_protocol(config, bootstrap_servers(config))
    theirs = {
        key: value
        for key, value in config.items()
        if key not in _OURS and value is not None and not key.startswith(PREFIX)
    }
    for key in sorted(_OURS & config.keys() & ours.keys()):
        if str(config[key]).lower() != str(ours[key]).lower():
            log.info("Kafka setting %s=%s is not used: this client needs %s", key, config[key], ours[key])
    return {**_DEFAULTS, "logger": _ToDebug(), **theirs, **ours, "error_cb": trouble}


def _check_protocol(config: Mapping[str, Any], servers: str) -> None:
    """Refuse a login, or TLS, without a protocol that has it: librdkafka would connect without it."""
    protocol = str(config.get("security.protocol") or "PLAINTEXT (the default)")
    stated = {key: key.partition(".")[0].upper() for key, value in config.items() if value not in (None, "")}
    ignored = {key: part for key, part in stated.items() if part in _PARTS and part not in protocol.upper()}
    if ignored:
        needed = [part for part in _PARTS if part in ignored.values() or part in protocol.upper()]
        fitting = (each.upper() for each in sorted(_PROTOCOLS, reverse=True) if all(p in each.upper() for p in needed))
        raise SpecError(
            "LC2015",
            f"the Kafka configuration for {servers} has {', '.join(sorted(ignored))}, which the client ignores with "
            f"security.protocol {protocol}: set security.protocol to {' or '.join(fitting)}, or remove them",
        )


def made(client: Callable[[dict[str, Any]], C], config: Mapping[str, Any], trouble: LastError, **ours: Any) -> C:
    """A client of that class.

    :raises SpecError: librdkafka does not know a key or refuses its value
    """
    settings = client_config(config, trouble, **ours)
    try:
        return client(settings)
    except (KafkaException, TypeError, ValueError) as error:
        text = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        raise SpecError(
            "LC2001",
            f"the Kafka configuration for {bootstrap_servers(config)} is wrong: {redacted(text, config)}; "
            "keys and values are those of librdkafka, not of the Java client",
        ) from None


def bootstrap_servers(config: Mapping[str, Any]) -> str:
    """Return the address of the brokers for a message, with the connection that defines it.

    :raises SpecError: the configuration has none, or in a form that Kafka does not know
    """
    return f"{servers_of(config)}{connection_suffix(config)}"


_TOO_LARGE = ": increase receive.message.max.bytes"
"""The advice of librdkafka on an answer whose first bytes are no length, such as that of an HTTP server."""


def servers_of(config: Mapping[str, Any]) -> str:
    """Where the brokers are, for a command.

    :raises SpecError: the configuration does not say, or in no way that Kafka knows
    """
    servers = config.get("bootstrap.servers") or config.get("metadata.broker.list")
    if not isinstance(servers, str) or not servers.strip(" ,"):
        raise SpecError(
            "LC2002", 'the Kafka configuration has no bootstrap.servers: give it as text, "host:port,host:port"'
        )
    shown = without(servers, ())
    if wrong := [found[1] for found in _SCHEME.finditer(shown) if found[1].lower() not in _PROTOCOLS]:
        raise SpecError(
            "LC2003",
            f"bootstrap.servers {shown!r}{connection_suffix(config)}: brokers are host:port, and {wrong[0]}:// is not "
            f"a Kafka protocol; set the protocol with security.protocol ({', '.join(sorted(_PROTOCOLS))})",
        )
    return shown


def unreachable(
    kind: type[LakecommitError],
    doing: str,
    config: Mapping[str, Any],
    trouble: LastError,
    seconds: float,
    detail: str = "",
) -> LakecommitError:
    """The error for brokers that gave no useful answer while *doing* something."""
    servers = bootstrap_servers(config)
    cause, other_protocol, _ = redacted(trouble.cause or detail or "no reason was given", config).partition(_TOO_LARGE)
    if trouble.denied:
        remedy = "check security.protocol, sasl.mechanism and the credentials"
        return kind("LC2010", f"{doing}: Kafka at {servers} refused the login: {cause}; {remedy}")
    remedy = "check bootstrap.servers, security.protocol and that the brokers are up"
    if other_protocol:
        remedy = "this answer is not Kafka's: check the port of bootstrap.servers; for TLS, set security.protocol"
    return kind("LC2011", f"{doing}: no answer from Kafka at {servers} within {seconds:.0f} s: {cause}; {remedy}")
