# SPDX-License-Identifier: Apache-2.0
"""A message of which every parser reads the same.

Contract: pure. :func:`read_alike` gives the message that Protobuf's own parser is asked to read in place of one with
closed enums (all of proto2): of such an enum it puts a number without a name aside, out of its order. In the other
message these are plain numbers: the same bytes, and each stays where it stands, whichever parser reads it.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

__all__ = ["read_alike"]


def read_alike(message: Descriptor) -> Descriptor:
    """The message with plain numbers for closed enums; the same one if there are none."""
    fields = (f for each in (message, *_within(message)) for f in each.fields)
    if not any(f.type == FieldDescriptor.TYPE_ENUM and f.enum_type.is_closed for f in fields):
        return message
    pool = DescriptorPool()
    for file in _files(message.file, set()):
        copied = FileDescriptorProto()
        file.CopyToProto(copied)
        for each in copied.message_type:
            _open(each, file.pool)
        pool.Add(copied)
    return pool.FindMessageTypeByName(message.full_name)


def _within(message: Descriptor) -> Iterator[Descriptor]:
    """All messages within one, each once."""
    found: dict[str, Descriptor] = {}
    left = [message]
    while left:
        for field in left.pop().fields:
            if (inner := field.message_type) is not None and inner.full_name not in found:
                found[inner.full_name] = inner
                left.append(inner)
    yield from found.values()


def _files(file: FileDescriptor, seen: set[str]) -> Iterator[FileDescriptor]:
    """A file behind those that it imports."""
    if file.name not in seen:
        seen.add(file.name)
        for each in file.dependencies:
            yield from _files(each, seen)
        yield file


def _open(message: DescriptorProto, pool: DescriptorPool) -> None:
    for field in message.field:
        if field.type == FieldDescriptorProto.TYPE_ENUM and pool.FindEnumTypeByName(field.type_name[1:]).is_closed:
            field.type = FieldDescriptorProto.TYPE_INT32
            field.ClearField("type_name")
            field.ClearField("default_value")
    for inner in message.nested_type:
        _open(inner, pool)
