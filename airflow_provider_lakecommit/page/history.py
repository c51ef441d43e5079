# SPDX-License-Identifier: Apache-2.0
"""What the page knows of a control topic as a file, so that a restart of the API server goes on where it was.

Contract: one file for each topic in a folder of this user alone, written whole and put in place at once. Of several
processes that read the same topic the first one writes, the others only read. A file is bounded as what is kept is
(:mod:`~airflow_provider_lakecommit.page.memory`), and one of more than :data:`MOST_BYTES` is not read.

Failure story: a file that is damaged, belongs to another user or may be written by others, or tells of another topic is
put aside under the name `….aside`, with a warning, and the topic is read from its beginning. A folder that cannot be
written is told once in the log; then nothing outlives the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import json
import logging
import os
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from airflow_provider_lakecommit.kafka.control_log import ControlTopicInfo
from airflow_provider_lakecommit.page.landings import PageTopic
from airflow_provider_lakecommit.page.memory import DAMAGE, TopicMemory
from airflow_provider_lakecommit.stall.verdict import State

__all__ = ["PageHistory"]

_LOG = logging.getLogger(__name__)

VERSION = 1
MOST_BYTES = 1 << 30
MOST_LINE = 1 << 26
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """What a file is of."""

    place: PageTopic
    info: ControlTopicInfo

    def to_json(self) -> dict[str, Any]:
        place, info = self.place, self.info
        own = {"connection": place.connection, "topic": place.topic}
        return {"v": VERSION, **own, "cluster_id": info.cluster_id, "topic_id": info.topic_id}


class PageHistory:
    """The file of one topic.

    :param folder: made if it is not there; ``None``: nothing is kept
    """

    def __init__(self, folder: Path | None, place: PageTopic) -> None:
        self._place = place
        name = sha256(str(place).encode()).hexdigest()[:20]
        self.path = None if folder is None else folder / f"{name}.json.gz"
        self._lock: IO[bytes] | None = None
        self._told = False

    def read(self, info: ControlTopicInfo) -> tuple[TopicMemory, dict[str, State]] | None:
        """What was kept of this very topic, if there is something."""
        if self.path is None or not self.path.exists():
            return None
        try:
            with self._opened() as file:
                lines = _lines(file)
                if next(lines, None) != _Head(place=self._place, info=info).to_json():
                    raise ValueError("it is of another topic, or of another release")
                return TopicMemory.from_json(lines)
        except (*DAMAGE, OSError, EOFError, zlib.error) as e:
            self.put_aside(f"{type(e).__name__} {e}"[:500])
            return None

    def write(self, info: ControlTopicInfo, memory: TopicMemory, states: Mapping[str, State]) -> bool:
        """Keep it. Is it kept by this process?"""
        if self.path is None:
            return False
        try:
            if not self._locked(self.path):
                return False
            made = self.path.with_suffix(".new")
            with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as raw:
                _write(raw, [_Head(place=self._place, info=info).to_json()], memory.to_json(states))
            made.replace(self.path)
        except OSError as e:
            if not self._told:
                _LOG.warning("the page's history %s cannot be written, and ends with this process: %s", self.path, e)
            self._told = True
            return False
        return True

    def put_aside(self, why: str) -> None:
        """Never believe it again."""
        if self.path is None:
            return
        aside = self.path.with_suffix(".aside")
        _LOG.warning("the page's history %s is put aside as %s, and read anew: %s", self.path, aside.name, why)
        with contextlib.suppress(OSError):
            self.path.replace(aside)

    def close(self) -> None:
        """Another process may write it now."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _opened(self) -> IO[bytes]:
        assert self.path is not None
        file = os.fdopen(os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW), "rb")
        about = os.fstat(file.fileno())
        if about.st_uid != os.geteuid() or about.st_mode & OTHERS_WRITE or about.st_size > MOST_BYTES:
            file.close()
            raise ValueError("it is not this user's own, may be written by others, or is too large")
        return file

    def _locked(self, path: Path) -> bool:
        """Is this the process that writes? It is until it closes, or ends."""
        if self._lock is None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = path.with_suffix(".lock").open("wb")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                return False
            self._lock = lock
        return True


def _lines(file: IO[bytes]) -> Iterator[Any]:
    """What is cut off has no last line; the checksum is looked at behind that."""
    with gzip.open(file, "rb") as text:
        while line := text.readline(MOST_LINE):
            told = json.loads(line)
            if told is None:
                if text.read(1):
                    raise ValueError("something follows its end")
                return
            yield told
    raise ValueError("it is cut off")


def _write(raw: IO[bytes], head: Iterable[Any], rest: Iterable[Any]) -> None:
    with gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=1, mtime=0) as out:
        for values in (head, rest, (None,)):
            for told in values:
                out.write(json.dumps(told, separators=(",", ":")).encode() + b"\n")
