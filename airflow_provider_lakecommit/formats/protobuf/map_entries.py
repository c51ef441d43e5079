# SPDX-License-Identifier: Apache-2.0
"""Entries of maps that a schema writes out, as Confluent's Java clients registered them from 2020 to 2024.

Contract: pure. These clients write a field ``map<string, int32> tags`` as ``repeated TagsEntry tags`` and a message
``TagsEntry`` with the option ``map_entry``, which is what descriptors hold and which the compiler refuses in a text.
:func:`compilable` puts a reserved number in the option's place, :func:`as_entries` the option back where that number
came out. So the messages of a file stay where they are, by which records name them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

_WRITTEN_OUT = re.compile(r"\boption\s+map_entry\s*=\s*true\s*;")
_MARK = 536_870_911
"""The last number that a field can have; an entry has two fields, 1 and 2."""


def compilable(text: str) -> str:
    """Return the text in a form that the compiler accepts."""
    return _WRITTEN_OUT.sub(f"reserved {_MARK};", text)


def as_entries(files: Iterable[FileDescriptorProto]) -> None:
    """Make the marked messages of compiled files what they were written as."""
    for file in files:
        _of(file.message_type)


def _of(messages: Iterable[DescriptorProto]) -> None:
    for message in messages:
        numbers = [(reserved.start, reserved.end) for reserved in message.reserved_range]
        if numbers == [(_MARK, _MARK + 1)] and {f.number for f in message.field} == {1, 2}:
            message.ClearField("reserved_range")
            message.options.map_entry = True
        _of(message.nested_type)
