# SPDX-License-Identifier: Apache-2.0
"""pyiceberg's Arrow storage, with options for S3 that pyiceberg does not pass to Arrow.

Contract: a small file is one PUT instead of a multipart upload, after one HEAD that checks that it does not exist. A
request has eleven attempts instead of three, with pauses that double, for about 50 s in all. It is not the standard
strategy of AWS: that has 100 retries for the life of a file system, since Arrow never returns any to it. An
``s3.retry-strategy-impl`` of the connection replaces the attempts. Other storages are pyiceberg's.

Failure story: Arrow creates the object when the file is closed, so a missing bucket or a refused key is an
:class:`OSError` of the close and not of the open.
"""

from __future__ import annotations

from pyarrow.fs import AwsDefaultS3RetryStrategy, FileSystem, S3FileSystem
from pyiceberg.io import S3_RETRY_STRATEGY_IMPL, OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO, _import_retry_strategy

ATTEMPTS = 11
"""With pauses of 50 ms, 100 ms and so on, for about 50 s in all."""


class _Counting(OutputStream):
    """A stream that counts what is written."""

    def __init__(self, stream: OutputStream) -> None:
        self._stream, self.size = stream, 0

    def __enter__(self) -> _Counting:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, data: bytes) -> int:
        self.size += len(data)
        return self._stream.write(data)

    def tell(self) -> int:
        return self.size

    def close(self) -> None:
        self._stream.close()


class _Output(PyArrowFile):
    """A file that one request checks for before it is created: pyiceberg also lists the folder of its name. The
    length of a manifest is known without one.
    """

    _written: _Counting | None = None

    def __len__(self) -> int:
        return super().__len__() if self._written is None else self._written.size

    def create(self, overwrite: bool = False) -> OutputStream:
        made = super().create(overwrite)
        if not self.location.endswith(".avro"):
            return made
        self._written = _Counting(made)
        return self._written

    def exists(self) -> bool:
        try:
            self._filesystem.open_input_file(self._path).close()
        except FileNotFoundError:
            return False
        return True


class ArrowFileIO(PyArrowFileIO):
    """The storage of a table, by Arrow."""

    def new_output(self, location: str) -> PyArrowFile:
        made = super().new_output(location)
        return _Output(made.location, made._path, made._filesystem, made._buffer_size)

    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:
        made = super()._initialize_s3_fs(netloc)
        named = self.properties.get(S3_RETRY_STRATEGY_IMPL)
        retry = (named and _import_retry_strategy(named)) or AwsDefaultS3RetryStrategy(max_attempts=ATTEMPTS)
        # All options but the retry strategy, as Arrow pickles them.
        (options,) = made.__reduce__()[1]
        return S3FileSystem(**{**options, "allow_delayed_open": True, "retry_strategy": retry})
