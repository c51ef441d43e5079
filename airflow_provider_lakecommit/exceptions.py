# SPDX-License-Identifier: Apache-2.0
"""The error tree.

Contract: everything this package raises on purpose is a :class:`LakecommitError`. Its type states whether a retry can
help: ``Transient`` errors may disappear by themselves (an unreachable broker, a catalog that does not answer),
``Terminal`` errors need a change first (a wrong spec, lost offsets). A retry loop reads only that mixin. Messages name
the window or the offsets, and the remedy. Codes are at each ``raise``, causes in ``docs/reference/error_causes.csv``.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "AccountingError",
    "BlockedRangeError",
    "CatalogError",
    "ClosedError",
    "CommitRefusedError",
    "CommitUnknownError",
    "CompilerError",
    "ConnectError",
    "ConnectorError",
    "ControlTopicError",
    "DecisionError",
    "FencedError",
    "LakecommitError",
    "LedgerError",
    "RecordsError",
    "RegistryError",
    "SourceCorruptError",
    "SourceError",
    "SourceUnavailableError",
    "SparkJobError",
    "SpecError",
    "StorageError",
    "TableError",
    "Terminal",
    "Transient",
    "WireError",
]


class LakecommitError(Exception):
    """Root of all errors of this package.

    ``code`` is "LC" and four digits, as in LC1042. A code never changes its meaning: the error reference lists it and
    tests match it, so that the sentence in ``message`` can improve.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        head, newline, rest = self.message.partition("\n")
        return f"{head} [{self.code}]{newline}{rest}"


class Terminal:
    """Mixin: trying again without a change cannot help."""


class Transient:
    """Mixin: trying again later can help."""


class SpecError(Terminal, LakecommitError, ValueError):
    """A landing's declaration is wrong: unknown key, wrong type, impossible combination."""

    def __init__(self, code: str, message: str, mistakes: tuple[str, ...] = ()) -> None:
        """:param mistakes: of a declaration, each with its own code"""
        super().__init__(code, message)
        self.mistakes = mistakes or (str(self),)


class WireError(Terminal, LakecommitError, ValueError):
    """Bytes or dicts from the control topic, a plan or a ledger cannot be read, or would exceed their limit."""


class LedgerError(Terminal, LakecommitError):
    """The ledger of a table is missing, cut off or of another table: a command is needed before anything is landed."""


class TableError(Terminal, LakecommitError):
    """The table is missing, or its schema, spec or branch cannot take this landing's rows."""


class CatalogError(Transient, LakecommitError):
    """The catalog could not be reached or refused the credentials."""


class StorageError(CatalogError):
    """The catalog answers, and a table that is missing could not be made, or a file of a table not be written."""


class ClosedError(Transient, LakecommitError):
    """The committer of this process is shutting down: the work did not start, or had to stop. The next attempt reads
    the result from the table.
    """


class CommitUnknownError(Transient, LakecommitError):
    """A commit request was sent and its outcome is unknown. Nothing is deleted; the next attempt checks again."""


class CommitRefusedError(CommitUnknownError):
    """A catalog answered each commit request with a refusal, and none was in the table at the last look."""


class SourceError(Terminal, LakecommitError):
    """The source no longer has offsets that are needed, or the topic or cluster is not the planned one."""

    def __init__(self, code: str, message: str, spans: tuple[Any, ...] = ()) -> None:
        """:param spans: the ones that it is about, where it is not about all that was to be read"""
        super().__init__(code, message)
        self.spans = spans


class SourceCorruptError(SourceError):
    """Records of the source are damaged where the brokers keep them, and cannot be read as they were written."""


class SourceUnavailableError(Transient, LakecommitError):
    """The source brokers could not be reached in time."""


class RegistryError(Transient, LakecommitError):
    """The schema registry could not be reached, refused the credentials, or gave no answer of a registry."""


class CompilerError(Transient, LakecommitError):
    """The compiler of Protobuf schemas could not be run, was killed, or did not end in time."""


class ControlTopicError(Transient, LakecommitError):
    """The control topic could not be read or written."""


class ConnectError(Transient, LakecommitError):
    """Kafka Connect's REST interface was unreachable, rejected a request, or did not complete it in time."""


class ConnectorError(Terminal, LakecommitError):
    """A connector is not there, or is not in the state that is needed."""


class FencedError(LakecommitError):
    """Another process took over the same transactional id: read the log again, this attempt is superseded."""


class AccountingError(Terminal, LakecommitError):
    """The records of a slice do not add up to its span: it must not be published."""


class RecordsError(Terminal, LakecommitError):
    """Processing the records of a range raised an exception that neither brokers nor storage caused: the same records
    would raise it again.
    """

    def __init__(self, code: str, message: str, spans: tuple[Any, ...] = ()) -> None:
        """:param spans: the ones whose records it was"""
        super().__init__(code, message)
        self.spans = spans


class BlockedRangeError(Terminal, LakecommitError):
    """A range is over its dead-letter budget, or failed too often: it needs a hand."""


class DecisionError(Terminal, LakecommitError):
    """The request would give something up or change a ledger, and no user has approved it in its current form."""


class SparkJobError(Transient, LakecommitError):
    """The Spark job of a partition group ended before all of its slices were reported."""

    def __init__(self, code: str, message: str, *, workers_died: bool = False) -> None:
        """:param workers_died: because processes died that processed slices, and neither Spark nor a user stopped it"""
        super().__init__(code, message)
        self.workers_died = workers_died
