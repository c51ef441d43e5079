# SPDX-License-Identifier: Apache-2.0
"""The schema that the columnar parser gets: the fields of a message in forms that its columns hold exactly.

It reads the same bytes as the original. Each field keeps its number and a type of the same wire format: enums are
numbers, times are seconds and nanoseconds, maps are lists of entries, ``oneof`` members are optional fields, and
unwanted fields are only detected. Fields are named ``f`` and their number, so no original name can clash.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

BYTES = FieldDescriptorProto.TYPE_BYTES
_PACKAGE = "wire"
_PLAIN_NUMBER = {FieldDescriptor.TYPE_ENUM: FieldDescriptorProto.TYPE_INT32}


def wire_name(number: int) -> str:
    return f"f{number}"


class WireFile:
    """The declared messages."""

    def __init__(self) -> None:
        self._file = FileDescriptorProto(name="wire.proto", package=_PACKAGE, syntax="proto3")

    def message(self) -> DescriptorProto:
        return self._file.message_type.add(name=f"M{len(self._file.message_type)}")

    def add(
        self,
        message: DescriptorProto,
        number: int,
        kind: int,
        *,
        repeated: bool = False,
        optional: bool = False,
        of: DescriptorProto | None = None,
    ) -> None:
        """Add a field to a message.

        :param optional: whether its presence is known; always true of a message
        :param of: its message, if it is one
        """
        field = message.field.add(name=wire_name(number), number=number, json_name=wire_name(number))
        field.type = _PLAIN_NUMBER.get(kind, kind) if of is None else FieldDescriptorProto.TYPE_MESSAGE
        field.label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
        if of is not None:
            field.type_name = f".{_PACKAGE}.{of.name}"
        elif optional and not repeated:
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{wire_name(number)}")

    def handler(self, message: DescriptorProto) -> Any:
        from ptars import HandlerPool, PtarsConfig

        pool = DescriptorPool()
        pool.Add(self._file)
        file = pool.FindFileByName(self._file.name)
        return HandlerPool([file], config=PtarsConfig()).get_for_message(file.message_types_by_name[message.name])
