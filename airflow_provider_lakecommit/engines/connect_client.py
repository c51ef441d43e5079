# SPDX-License-Identifier: Apache-2.0
"""Calls to one session of a Spark Connect server.

Contract: a :class:`ConnectClient` belongs to one session id, which the server makes on the first call. Every failed
call is a :class:`SparkConnectError` with one line of text and its kind, so that callers decide by kinds and never by
texts. An *operation* is a plan that the server runs under an id of our choice: it goes on when nobody listens, and
whoever knows the id may listen from its first result on, again, because nothing is released before :meth:`release`. One
listener at a time: a newer one ends the older with the kind ``TAKEN_OVER``.

The token of the connection is sent as the standard clients send it, and never over a network unencrypted.

Failure story: nothing is tried again here; what a lost connection means is for the caller to decide.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import UUID

from airflow_provider_lakecommit.engines.connect_protocol import METHODS, message
from airflow_provider_lakecommit.exceptions import SpecError

__all__ = ["ConnectClient", "ConnectUrl", "FailureKind", "Result", "SparkConnectError"]

SERVICE = "/spark.connect.SparkConnectService/"
DEFAULT_PORT = 15002
DEFAULT_USER = "lakecommit"
CALL_SECONDS = 60.0
STREAM_SECONDS = 300.0
"""A server ends a stream of its own accord after two minutes, so that a longer silence means a dead connection."""
CHUNK = 32 * 1024
MESSAGE_BYTES = 128 * 1024 * 1024
MAP_IN_ARROW = 207
"""Spark's number for a function from record batches to record batches."""
BY_OPERATION_ID = 3
"""Spark's number for an interruption by operation id."""
TEXT_LENGTH = 400
"""Most characters of a line of a server's text that are passed on."""
_OURS = ("user_id", "token", "use_ssl", "user_agent", "session_id")


class FailureKind(Enum):
    """What a failed call means."""

    AWAY = "the server cannot be reached"
    REFUSED = "the server refuses us"
    UNKNOWN = "the server knows no such operation"
    OVER = "the operation has ended before and cannot be had again"
    EXISTS = "another plan has this operation id"
    TAKEN_OVER = "another listener has taken over"
    SESSION_OVER = "the session was closed"
    CANCELLED = "the operation was cancelled"
    FAILED = "the call failed"


_KINDS = {
    "INVALID_HANDLE.OPERATION_NOT_FOUND": FailureKind.UNKNOWN,
    "INVALID_HANDLE.SESSION_NOT_FOUND": FailureKind.UNKNOWN,
    "INVALID_HANDLE.OPERATION_ABANDONED": FailureKind.OVER,
    "INVALID_CURSOR.POSITION_NOT_AVAILABLE": FailureKind.OVER,
    "INVALID_CURSOR.POSITION_NOT_FOUND": FailureKind.OVER,
    "INVALID_HANDLE.OPERATION_ALREADY_EXISTS": FailureKind.EXISTS,
    "INVALID_CURSOR.DISCONNECTED": FailureKind.TAKEN_OVER,
    "INVALID_HANDLE.SESSION_CLOSED": FailureKind.SESSION_OVER,
    "INVALID_HANDLE.SESSION_CHANGED": FailureKind.SESSION_OVER,
    "OPERATION_CANCELED": FailureKind.CANCELLED,
}
"""By the error classes that Spark puts before its texts."""


class SparkConnectError(Exception):
    """A call that failed."""

    def __init__(self, kind: FailureKind, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectUrl:
    """Where a server is and how to talk to it."""

    endpoint: str
    user: str
    secure: bool
    token: str | None
    headers: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, url: str) -> ConnectUrl:
        """From `sc://host:port/;use_ssl=true;token=…`, as Spark's own clients read it.

        :raises SpecError: it is no such URL, or would send its token unencrypted
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port or DEFAULT_PORT
            path, *rest = parts.path.split(";")
            values = {key: unquote(value) for key, value in (word.split("=", 1) for word in rest if word)}
        except ValueError:
            raise SpecError(f"the Spark Connect URL {_hidden(url)!r} cannot be read: {_FORM}") from None
        if parts.scheme != "sc" or not host or path.strip("/"):
            raise SpecError(f"{_hidden(url)!r} is no Spark Connect URL: {_FORM}")
        local, token = host in ("localhost", "127.0.0.1", "::1"), values.get("token")
        wants = values.get("use_ssl", "").lower()
        if token and wants == "false" and not local:
            raise SpecError(
                f"the token of {_hidden(url)!r} would go over the network unencrypted: leave use_ssl=false out"
            )
        return cls(
            endpoint=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            user=values.get("user_id") or DEFAULT_USER,
            secure=wants == "true" or bool(token and not local),
            token=token,
            headers=tuple((key.lower(), value) for key, value in values.items() if key not in _OURS),
        )

    def __repr__(self) -> str:
        return f"ConnectUrl({self})"

    def __str__(self) -> str:
        return f"sc://{self.endpoint}"

    def metadata(self) -> list[tuple[str, str]]:
        """Headers of every call."""
        return [*self.headers, *([("authorization", f"Bearer {self.token}")] if self.token else [])]


_FORM = "it is sc://host:port, then perhaps /;use_ssl=true;token=…;user_id=…"


def _hidden(url: str) -> str:
    """Without its parameters: a token may be among them."""
    return url.split(";", 1)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One answer of an operation: rows, as an Arrow stream, or none; the last one says so."""

    id: str
    arrow: bytes | None
    last: bool


class ConnectClient:
    """One session of a server.

    :param session_id: of the session; who gives the same one with the same user is in the same session
    """

    def __init__(self, url: ConnectUrl, session_id: UUID) -> None:
        self.url = url
        self.session_id = session_id
        self._channel: Any = None

    def close(self) -> None:
        """End the connection; the session and its operations go on."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    # -- the session --------------------------------------------------------------------------------------------------

    def settings(self, *keys: str) -> dict[str, str]:
        """Those of the session's settings that are set."""
        answer = self._config(get_option={"keys": keys})
        return {pair.key: pair.value for pair in answer.pairs if pair.HasField("value")}

    def set(self, settings: Mapping[str, str]) -> None:
        """Set settings of the session."""
        self._config(set={"pairs": [{"key": key, "value": value} for key, value in settings.items()]})

    def unset(self, *keys: str) -> None:
        """Remove settings of the session."""
        self._config(unset={"keys": keys})

    def add_python_file(self, name: str, content: bytes) -> None:
        """Put a zip of Python modules before the search path of the session's workers. The same name must always have
        the same content.
        """
        answer = self._call("AddArtifacts", self._artifact(f"pyfiles/{name}", content), sends_stream=True)
        if not all(summary.is_crc_successful for summary in answer.artifacts):
            raise SparkConnectError(FailureKind.FAILED, f"{name} did not arrive whole at {self.url}")

    # -- operations ---------------------------------------------------------------------------------------------------

    def execute(self, operation: UUID, plan: Mapping[str, Any], tags: Sequence[str]) -> Iterator[Result]:
        """Have a plan run and listen to it. Sent again with the same plan while it is there, it runs once.

        :raises SparkConnectError: ``EXISTS``, ``OVER``: the id was used before
        """
        options = [{"reattach_options": {"reattachable": True}}]
        request = self._request(
            "ExecutePlan", operation_id=str(operation), plan=plan, tags=tags, request_options=options
        )
        return self._results("ExecutePlan", request)

    def listen(self, operation: UUID, after: str | None = None) -> Iterator[Result]:
        """The results of an operation, from its first one or from the one after *after*. The stream may end without a
        last result: then listen again.

        :raises SparkConnectError: ``UNKNOWN``, ``OVER``: there is nothing to listen to
        """
        place = {"last_response_id": after} if after else {}
        return self._results("ReattachExecute", self._request("ReattachExecute", operation_id=str(operation), **place))

    def release(self, operation: UUID) -> None:
        """Let the server forget an operation."""
        self._call("ReleaseExecute", self._request("ReleaseExecute", operation_id=str(operation), release_all={}))

    def interrupt(self, operation: UUID) -> None:
        """Cancel an operation; one that has ended or is not known is no error."""
        wanted = {"interrupt_type": BY_OPERATION_ID, "operation_id": str(operation)}
        self._call("Interrupt", self._request("Interrupt", **wanted))

    # -- how ----------------------------------------------------------------------------------------------------------

    def _config(self, **operation: Any) -> Any:
        return self._call("Config", self._request("Config", operation=operation))

    def _request(self, method: str, **fields: Any) -> Any:
        return message(METHODS[method][0])(**self._who(), **fields)

    def _who(self) -> dict[str, Any]:
        return {
            "session_id": str(self.session_id),
            "user_context": {"user_id": self.url.user},
            "client_type": "lakecommit",
        }

    def _artifact(self, name: str, content: bytes) -> Iterator[Any]:
        chunks = [content[at : at + CHUNK] for at in range(0, len(content), CHUNK)]
        first, *others = ({"data": chunk, "crc": zlib.crc32(chunk)} for chunk in chunks)
        begin = {"name": name, "total_bytes": len(content), "num_chunks": len(chunks), "initial_chunk": first}
        yield self._request("AddArtifacts", begin_chunk=begin)
        for chunk in others:
            yield self._request("AddArtifacts", chunk=chunk)

    def _call(self, method: str, request: Any, *, sends_stream: bool = False) -> Any:
        import grpc

        kind = self._open().stream_unary if sends_stream else self._open().unary_unary
        try:
            return _stub(kind, method)(request, timeout=CALL_SECONDS, metadata=self.url.metadata())
        except grpc.RpcError as e:
            raise self._error(e) from e
        except ValueError as e:
            raise SparkConnectError(FailureKind.AWAY, f"{self.url}: {e}") from e

    def _results(self, method: str, request: Any) -> Iterator[Result]:
        import grpc

        call = _stub(self._open().unary_stream, method)
        answers = call(request, timeout=STREAM_SECONDS, metadata=self.url.metadata())
        try:
            for answer in answers:
                yield Result(
                    id=answer.response_id,
                    arrow=answer.arrow_batch.data if answer.HasField("arrow_batch") else None,
                    last=answer.HasField("result_complete"),
                )
        except grpc.RpcError as e:
            raise self._error(e) from e
        finally:
            answers.cancel()

    def _open(self) -> Any:
        import grpc

        if self._channel is None:
            sizes = ("grpc.max_send_message_length", "grpc.max_receive_message_length")
            # Else two clients of one process share a connection, and the end of one would be the end of the other's.
            options = [*((size, MESSAGE_BYTES) for size in sizes), ("grpc.use_local_subchannel_pool", 1)]
            if self.url.secure:
                credentials = grpc.ssl_channel_credentials()
                self._channel = grpc.secure_channel(self.url.endpoint, credentials, options=options)
            else:
                self._channel = grpc.insecure_channel(self.url.endpoint, options=options)
        return self._channel

    def _error(self, error: Any) -> SparkConnectError:
        import grpc

        code, text = error.code(), str(error.details() or "")
        found = re.match(r"\s*\[([A-Z_.]+)\]", text)
        if found and found[1] in _KINDS:
            return SparkConnectError(_KINDS[found[1]], one_line(text))
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
            return SparkConnectError(FailureKind.AWAY, f"{self.url}: {one_line(text)}")
        if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
            return SparkConnectError(FailureKind.REFUSED, f"{self.url}: {one_line(text)}")
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return SparkConnectError(FailureKind.REFUSED, f"{self.url} is no Spark Connect server: {one_line(text)}")
        return SparkConnectError(FailureKind.FAILED, one_line(text) or str(code))


def _stub(kind: Any, method: str) -> Any:
    request, answer = (message(name) for name in METHODS[method])
    return kind(SERVICE + method, request_serializer=request.SerializeToString, response_deserializer=answer.FromString)


def one_line(text: str) -> str:
    """What matters of a server's text: its first line, and of a Python traceback in it the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    errors = [line for line in lines[1:] if re.match(r"(\w+\.)*\w*(Error|Exception)\b", line)]
    parts = [lines[0], *errors[:1]]
    return ": ".join(part[:TEXT_LENGTH] for part in parts)
