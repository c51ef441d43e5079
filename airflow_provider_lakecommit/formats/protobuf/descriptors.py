# SPDX-License-Identifier: Apache-2.0
"""Protobuf schemas as descriptors, from ``.proto`` text or serialized descriptors.

Texts are compiled with their imports (:mod:`~airflow_provider_lakecommit.formats.protobuf.compiler`). Descriptors are a
``FileDescriptorSet`` (``protoc --include_imports --descriptor_set_out``) or a ``FileDescriptorProto`` in base64. Each
schema has a pool of its own: versions of a message never meet. Results are cached for :data:`MOST_KEPT` schemas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from airflow_provider_lakecommit.formats.decoder import Refusal
from airflow_provider_lakecommit.formats.protobuf.compiler import (
    MOST_TEXT,
    DescriptorError,
    Imported,
    compiled,
    file_in,
    in_base64,
)
from airflow_provider_lakecommit.formats.registry.schema_source import RegisteredSchema, key_text

MOST_KEPT = 256


@lru_cache(MOST_KEPT)
def file_of(text: str, imported: Imported = ()) -> FileDescriptor:
    """Return the descriptor of a schema.

    :param imported: name and text of each file that it imports, dependencies first
    """
    files = _serialized(text, imported) or compiled(text, imported)
    pool = DescriptorPool()
    try:
        for file in files:
            pool.Add(file)
        return pool.FindFileByName(files[-1].name)
    except (TypeError, KeyError) as e:
        raise DescriptorError(f"the schema cannot be used: {str(e)[:MOST_TEXT]}") from e


def registered_file(schema: RegisteredSchema) -> FileDescriptor:
    try:
        return file_of(schema.text, tuple((name, inner.text) for name, inner in schema.imported()))
    except DescriptorError as e:
        raise Refusal("wrong_schema", None, f"{key_text(schema.key)}: {e}") from None


def message_named(file: FileDescriptor, name: str) -> Descriptor:
    """Return the message with that full name, or the first one."""
    found = {m.full_name: m for m in _messages(list(file.message_types_by_name.values()))}
    if not found:
        raise DescriptorError("the schema has no message")
    if name and name not in found:
        raise DescriptorError(f"the schema has no message {name!r} (it has {', '.join(found)})")
    return found[name] if name else next(iter(found.values()))


def message_at(file: FileDescriptor, path: Sequence[int], named: str = "") -> Descriptor:
    """Return the message that a record names by its path in the file.

    Map entries are nested messages, which not all clients count. No record is an entry: if a path leads to one, it was
    made without counting them.

    :param named: the expected full name, which decides if both ways lead to a message
    :raises DescriptorError: there is none
    """
    ways = [_walked(file, path, entries=entries) for entries in (True, False)]
    found = [m for m in ways if m is not None and not m.GetOptions().map_entry]
    if not found:
        raise DescriptorError(f"the schema has no message at {'.'.join(map(str, path))}")
    return next((m for m in found if m.full_name == named), found[0])


def _walked(file: FileDescriptor, path: Sequence[int], *, entries: bool) -> Descriptor | None:
    messages, found = list(file.message_types_by_name.values()), None
    for index in path:
        if not 0 <= index < len(messages):
            return None
        found = messages[index]
        messages = [m for m in found.nested_types if entries or not m.GetOptions().map_entry]
    return found


def _messages(of: Sequence[Descriptor]) -> list[Descriptor]:
    return [m for each in of for m in (each, *_messages(list(each.nested_types)))]


def _serialized(text: str, imported: Imported) -> list[FileDescriptorProto]:
    """Return the files of a serialized schema, dependencies first; empty if it is none."""
    if (octets := in_base64(text)) is None:
        return []
    if (one := file_in(text)) is not None:
        files = [file for name, inner in imported if (file := file_in(inner, name)) is not None]
        if len(files) < len(imported):
            return [*compiled(_importing(one.dependency), imported)[:-1], one]
        return [*_known([one, *files]), *files, one]
    try:
        files = list(descriptor_pb2.FileDescriptorSet.FromString(octets).file)
    except DecodeError:
        return []
    return [*_known(files), *files]


def _known(files: Sequence[FileDescriptorProto]) -> list[FileDescriptorProto]:
    """Return the imported files of `google/protobuf` that are not among the files."""
    missing = {name for f in files for name in f.dependency} - {f.name for f in files}
    return _known_files(tuple(sorted(missing))) if missing else []


@lru_cache(MOST_KEPT)
def _known_files(names: tuple[str, ...]) -> list[FileDescriptorProto]:
    return compiled(_importing(names), ())[:-1]


def _importing(names: Iterable[str]) -> str:
    return 'syntax = "proto3";\n' + "".join(f'import "{name}";\n' for name in names)


def read_alike(message: Descriptor, *, strict: bool = False) -> Descriptor:
    """Return a variant of a message that every parser reads alike; the same message if nothing changes.

    Protobuf's own parser moves unknown numbers of closed enums (all of proto2) out of order. The variant has plain
    numbers for such enums: the same bytes, in order.

    :param strict: leave out groups and extensions, so that they are found as unknown fields
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
