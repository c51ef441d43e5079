# SPDX-License-Identifier: Apache-2.0
"""The schema that the columnar parser is given: the fields of a message, in forms that its columns can hold exactly.

Contract: a message that is declared here reads the same bytes as the original. Each field keeps its number and a type
of the same wire format, and loses all that the parser would decide by itself: enums are their numbers, times are their
seconds and nanoseconds, maps are lists of their entries, the members of a ``oneof`` are optional fields, and what no
column wants is read only as far as it takes to know that it is there. Names are ``f`` and the number of the field, so
that none of the original's can stand in the way.
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
    """The messages that are declared for one message of a schema."""

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
        """A field of a message.

        :param kind: a type of a ``FieldDescriptor``
        :param optional: can it be told apart whether it is there? That of a message always can.
        :param of: the message that it is
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
