# SPDX-License-Identifier: Apache-2.0
"""Calls to one session of a Spark Connect server.

Contract: a :class:`ConnectClient` belongs to one session id; the server creates the session on the first call. Every
failed call is a :class:`SparkConnectError` with one line of text and its kind, so that callers decide by kind, never by
text. An *operation* is a plan that the server runs under a given id: it continues without a listener, and any client
with the id may read all results again, because nothing is released before :meth:`release`. A newer listener ends an
older one with the kind ``TAKEN_OVER``.

Failure story: nothing is retried here; the caller decides what a lost connection means.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any
from uuid import UUID

from airflow_provider_lakecommit.spark.launch.connect_protocol import METHODS, message
from airflow_provider_lakecommit.spark.launch.connect_url import ConnectUrl

SERVICE = "/spark.connect.SparkConnectService/"
CALL_SECONDS = 60.0
STREAM_SECONDS = 300.0
"""A server ends each stream after two minutes, so a longer silence means a dead connection."""
CHUNK = 32 * 1024
MESSAGE_BYTES = 128 * 1024 * 1024
BY_OPERATION_ID = 3
"""Spark's number for an interruption by operation id."""
DETAILS = "grpc-status-details-bin"
"""The gRPC metadata keys of an error's details."""
TEXT_LENGTH = 400
"""Most characters of a line of a server's text to pass on."""


class FailureKind(Enum):
    """The meaning of a failed call."""

    AWAY = "the server cannot be reached"
    REFUSED = "the server refuses the connection"
    UNKNOWN = "the server does not know the operation"
    OVER = "the operation ended earlier and cannot be repeated"
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
"""Kinds by the error classes that Spark puts before its texts."""


class SparkConnectError(Exception):
    """A call that failed."""

    def __init__(self, kind: FailureKind, text: str) -> None:
        super().__init__(text)
        self.kind = kind

    @property
    def meaning(self) -> str:
        """Return what became of an operation after this error, and what to do."""
        match self.kind:
            case FailureKind.AWAY:
                return f"the Spark Connect server cannot be reached ({self}): start it, or correct host and port"
            case FailureKind.REFUSED:
                return f"the Spark Connect server refuses the connection ({self}): check token, use_ssl and port"
            case FailureKind.UNKNOWN | FailureKind.OVER | FailureKind.SESSION_OVER:
                return f"the server gave it up or was restarted ({self}): the next attempt does the rest"
            case FailureKind.TAKEN_OVER:
                return "another attempt of the same task has taken it over"
            case FailureKind.CANCELLED:
                return "it was stopped"
            case _:
                return str(self)


class ConnectClient:
    """One session of a server.

    :param session_id: id of the session; the same id and user mean the same session
    """

    def __init__(self, url: ConnectUrl, session_id: UUID) -> None:
        self.url = url
        self.session_id = session_id
        self._channel: Any = None

    def close(self) -> None:
        """Close the connection; the session and its operations continue."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    # -- the session --------------------------------------------------------------------------------------------------

    def settings(self, *keys: str) -> dict[str, str]:
        """Return those of the session's settings that are set."""
        answer = self._config(get_option={"keys": keys})
        return {pair.key: pair.value for pair in answer.pairs if pair.HasField("value")}

    def set(self, settings: Mapping[str, str]) -> None:
        """Set settings of the session."""
        self._config(set={"pairs": [{"key": key, "value": value} for key, value in settings.items()]})

    def unset(self, *keys: str) -> None:
        """Remove settings of the session."""
        self._config(unset={"keys": keys})

    def add_python_file(self, name: str, content: bytes) -> None:
        """Add a zip of Python modules to the search path of the session's workers. A name must always have the same
        content.
        """
        answer = self._call("AddArtifacts", self._artifact(f"pyfiles/{name}", content), sends_stream=True)
        if not all(summary.is_crc_successful for summary in answer.artifacts):
            raise SparkConnectError(FailureKind.FAILED, f"{name} did not arrive intact at {self.url}")

    # -- operations ---------------------------------------------------------------------------------------------------

    def execute(self, operation: UUID, plan: Mapping[str, Any], tags: Sequence[str]) -> Iterator[Any]:
        """Run a plan and yield its results, each an ``ExecutePlanResponse``: rows as an Arrow stream, the number of
        running tasks, or the end. The same plan sent again while the operation exists runs only once.

        :raises SparkConnectError: ``EXISTS``, ``OVER``: the id was used before
        """
        options = [{"reattach_options": {"reattachable": True}}]
        request = self._request(
            "ExecutePlan", operation_id=str(operation), plan=plan, tags=tags, request_options=options
        )
        return self._results("ExecutePlan", request)

    def listen(self, operation: UUID, after: str | None = None) -> Iterator[Any]:
        """Yield the results of an operation, from its first one or from the one after *after*. If the stream ends
        without a last result, listen again.

        :raises SparkConnectError: ``UNKNOWN``, ``OVER``: there is nothing to listen to
        """
        position = {"last_response_id": after} if after else {}
        return self._results(
            "ReattachExecute", self._request("ReattachExecute", operation_id=str(operation), **position)
        )

    def release(self, operation: UUID) -> None:
        """Let the server forget an operation."""
        self._call("ReleaseExecute", self._request("ReleaseExecute", operation_id=str(operation), release_all={}))

    def interrupt(self, operation: UUID) -> None:
        """Cancel an operation; an ended or unknown one is no error."""
        request = {"interrupt_type": BY_OPERATION_ID, "operation_id": str(operation)}
        self._call("Interrupt", self._request("Interrupt", **request))

    # -- how ----------------------------------------------------------------------------------------------------------

    def _config(self, **operation: Any) -> Any:
        return self._call("Config", self._request("Config", operation=operation))

    def _request(self, method: str, **fields: Any) -> Any:
        return message(METHODS[method][0])(
            session_id=str(self.session_id), user_context={"user_id": self.url.user}, client_type="lakecommit", **fields
        )

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

    def _results(self, method: str, request: Any) -> Iterator[Any]:
        import grpc

        call = _stub(self._open().unary_stream, method)
        answers = call(request, timeout=STREAM_SECONDS, metadata=self.url.metadata())
        try:
            yield from answers
        except grpc.RpcError as e:
            raise self._error(e) from e
        finally:
            answers.cancel()

    def _open(self) -> Any:
        import grpc

        if self._channel is None:
            sizes = ("grpc.max_send_message_length", "grpc.max_receive_message_length")
            # Otherwise two clients of one process share a connection, and closing one closes the other.
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
            return SparkConnectError(FailureKind.REFUSED, f"{self.url} is not a Spark Connect server: {one_line(text)}")
        # Java's texts often mean nothing without the class: for an existing file it is the path alone.
        named = "" if found else class_of(error.trailing_metadata() or ()) or code.name
        return SparkConnectError(FailureKind.FAILED, one_line(": ".join(filter(None, (named, text)))))


def _stub(kind: Any, method: str) -> Any:
    request, answer = (message(name) for name in METHODS[method])
    return kind(SERVICE + method, request_serializer=request.SerializeToString, response_deserializer=answer.FromString)


def class_of(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """Return the Java class of the error that ended a call, from the server's metadata, or an empty text."""
    from google.protobuf.message import DecodeError

    status = next((value for key, value in metadata if key == DETAILS and isinstance(value, bytes)), b"")
    try:
        details = message("google.rpc.Status").FromString(status).details
        infos = (d.value for d in details if d.type_url.endswith("/google.rpc.ErrorInfo"))
        return next((str(message("google.rpc.ErrorInfo").FromString(info).reason) for info in infos), "")
    except DecodeError:
        return ""


def one_line(text: str) -> str:
    """Return the relevant part of a server's text: its first line, or the error in a Python traceback."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    errors = [line for line in lines[1:] if re.match(r"(\w+\.)*\w*(Error|Exception)\b", line)]
    parts = [lines[0], *errors[:1]]
    return ": ".join(part[:TEXT_LENGTH] for part in parts)
