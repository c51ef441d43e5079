# SPDX-License-Identifier: Apache-2.0
"""The full names of the Protobuf messages that records are, for what is routed by them.

Contract: a record names its message by the id of a schema and the path in it. One whose path leads nowhere is a reject
of the kind that the format's decoder gives it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from google.protobuf.descriptor import FileDescriptor

from airflow_provider_lakecommit.formats.decoder import Refusal, Reject
from airflow_provider_lakecommit.formats.framed_values import FramedPart
from airflow_provider_lakecommit.formats.protobuf.descriptors import DescriptorError, message_at, registered_file
from airflow_provider_lakecommit.formats.protobuf.message_framing import paths_of
from airflow_provider_lakecommit.formats.registry.schemas import PROTOBUF, RegisteredSchema, told
from airflow_provider_lakecommit.formats.schema_names import SchemaNames


class MessageNames(SchemaNames[FileDescriptor]):
    """Message names of Protobuf."""

    kind = PROTOBUF

    def _made(self, schema: RegisteredSchema) -> FileDescriptor:
        return registered_file(schema)

    def _named(
        self, values: Sequence[bytes], part: FramedPart[FileDescriptor], rejects: list[Reject]
    ) -> Iterator[tuple[str | None, Sequence[int]]]:
        found, wrong = paths_of([values[i] for i in part.places], part.start)
        rejects += [Reject.of(part.places[i], Refusal("not_framed", None, why)) for i, why in wrong.items()]
        for (path, _), places in found.items():
            at = [part.places[i] for i in places]
            try:
                yield message_at(part.made, path).full_name, at
            except DescriptorError as e:
                rejects += [Reject.of(i, Refusal("wrong_schema", None, f"{told(part.key)}: {e}")) for i in at]
