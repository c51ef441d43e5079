# SPDX-License-Identifier: Apache-2.0
"""A message variant that every parser reads alike.

Protobuf's own parser moves unknown numbers of closed enums (all of proto2) out of order. :func:`read_alike` turns such
enums into plain numbers: the same bytes, in order. With ``strict``, groups and extensions are left out, so that they
are found as unknown fields.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool


def read_alike(message: Descriptor, *, strict: bool = False) -> Descriptor:
    """Return the variant; the same message if nothing changes.

    :param strict: treat groups and extensions as unknown fields
    """
    fields = (f for each in (message, *_within(message)) for f in each.fields)
    if not strict and not any(_closed(f) for f in fields):
        return message
    pool = DescriptorPool()
    for file in _files(message.file, set()):
        copied = FileDescriptorProto()
        file.CopyToProto(copied)
        for each in copied.message_type:
            _changed(each, file.message_types_by_name[each.name], strict)
        if strict:
            copied.ClearField("extension")
        pool.Add(copied)
    return pool.FindMessageTypeByName(message.full_name)


def _within(message: Descriptor) -> Iterator[Descriptor]:
    """Yield all nested messages, each once."""
    found: dict[str, Descriptor] = {}
    left = [message]
    while left:
        for field in left.pop().fields:
            if (inner := field.message_type) is not None and inner.full_name not in found:
                found[inner.full_name] = inner
                left.append(inner)
    yield from found.values()


def _files(file: FileDescriptor, visited: set[str]) -> Iterator[FileDescriptor]:
    """Yield a file after its imports."""
    if file.name not in visited:
        visited.add(file.name)
        for each in file.dependencies:
            yield from _files(each, visited)
        yield file


def _closed(field: FieldDescriptor) -> bool:
    return field.type == FieldDescriptor.TYPE_ENUM and bool(field.enum_type.is_closed)


def _changed(message: DescriptorProto, of: Descriptor, strict: bool) -> None:
    for field in message.field:
        original = of.fields_by_number[field.number]
        if _closed(original):
            field.type = FieldDescriptorProto.TYPE_INT32
        elif strict and original.type == FieldDescriptor.TYPE_GROUP:
            # Another wire type than a group, so a present group is an unknown field.
            field.type = FieldDescriptorProto.TYPE_BYTES
            if field.options.HasField("features"):
                field.options.features.ClearField("message_encoding")
        else:
            continue
        field.ClearField("type_name")
        field.ClearField("default_value")
    if strict:
        message.ClearField("extension")
    for inner in message.nested_type:
        _changed(inner, of.nested_types_by_name[inner.name], strict)
