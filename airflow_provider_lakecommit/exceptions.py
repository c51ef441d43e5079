# SPDX-License-Identifier: Apache-2.0
"""The error tree.

Contract: everything this package raises on purpose is a :class:`LakecommitError`. Whether trying again can help is part
of the type: ``Transient`` errors may go away by themselves (a broker that is away, a catalog that does not answer),
``Terminal`` errors need a change by somebody (a wrong spec, lost offsets). A retry loop reads only that mixin. Messages
name the window or the offsets, and the remedy.
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
    "SourceDamagedError",
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
    """The committer of this process is shutting down: the work was not begun, or was asked to end. The next attempt
    looks at the table.
    """


class CommitUnknownError(Transient, LakecommitError):
    """A commit request was sent and its outcome could not be learned; nothing is deleted, the next attempt looks
    again.
    """


class CommitRefusedError(CommitUnknownError):
    """A catalog answered each commit request with a refusal, and none was in the table at the last look."""


class SourceError(Terminal, LakecommitError):
    """Source offsets that are needed are gone, or the topic or cluster is not the one that was planned."""

    def __init__(self, code: str, message: str, spans: tuple[Any, ...] = ()) -> None:
        """:param spans: the ones that it is about, where it is not about all that was to be read"""
        super().__init__(code, message)
        self.spans = spans


class SourceDamagedError(SourceError):
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
    """Kafka Connect's REST interface could not be reached, refused, or did not do in time what it was asked for."""


class ConnectorError(Terminal, LakecommitError):
    """A connector is not there, or is not in the state that is needed."""


class FencedError(LakecommitError):
    """Another process took over the same transactional id: read the log again, this attempt is superseded."""


class AccountingError(Terminal, LakecommitError):
    """The records of a slice do not add up to its span: it must not be published."""


class RecordsError(Terminal, LakecommitError):
    """Handling the records of a range ended in an exception that says nothing of brokers or storage: the same records
    would bring it again.
    """

    def __init__(self, code: str, message: str, spans: tuple[Any, ...] = ()) -> None:
        """:param spans: the ones whose records it was"""
        super().__init__(code, message)
        self.spans = spans


class BlockedRangeError(Terminal, LakecommitError):
    """A range is over its dead-letter budget, or failed too often: it needs a hand."""


class DecisionError(Terminal, LakecommitError):
    """What was asked for would give something up or change a ledger, and no person has decided it as it is now."""


class SparkJobError(Transient, LakecommitError):
    """The Spark job of a partition group ended before all of its slices were reported."""

    def __init__(self, code: str, message: str, *, workers_died: bool = False) -> None:
        """:param workers_died: because processes died that worked at slices, and neither Spark nor a person ended it"""
        super().__init__(code, message)
        self.workers_died = workers_died
