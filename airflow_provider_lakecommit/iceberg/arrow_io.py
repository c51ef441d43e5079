# SPDX-License-Identifier: Apache-2.0
"""pyiceberg's Arrow storage, with options for S3 that pyiceberg does not pass to Arrow.

Contract: a small file is one PUT instead of a multipart upload, and a request has ten attempts instead of three, with
growing random pauses (the standard strategy of AWS). An ``s3.retry-strategy-impl`` of the connection replaces the
attempts. Other storages are pyiceberg's.

Failure story: Arrow creates the object when the file is closed, so a missing bucket or a refused key is an
:class:`OSError` of the close and not of the open.
"""

from __future__ import annotations

from pyarrow.fs import AwsStandardS3RetryStrategy, FileSystem, S3FileSystem
from pyiceberg.io import S3_RETRY_STRATEGY_IMPL
from pyiceberg.io.pyarrow import PyArrowFileIO, _import_retry_strategy

__all__ = ["ATTEMPTS", "ArrowFileIO"]

ATTEMPTS = 10
"""With pauses of up to 20 s, for about a minute."""


class ArrowFileIO(PyArrowFileIO):
    """The storage of a table, by Arrow."""

    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:
        made = super()._initialize_s3_fs(netloc)
        named = self.properties.get(S3_RETRY_STRATEGY_IMPL)
        retry = (named and _import_retry_strategy(named)) or AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS)
        # All options but the retry strategy, as Arrow pickles them.
        (options,) = made.__reduce__()[1]
        return S3FileSystem(**{**options, "allow_delayed_open": True, "retry_strategy": retry})
