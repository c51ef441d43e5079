# SPDX-License-Identifier: Apache-2.0
"""Protobuf schemas as descriptors, from what registries and landings hold: ``.proto`` text, or serialized descriptors.

Contract: a text is compiled by ``protoc`` itself (of grpcio-tools), with what it imports; ``google/protobuf`` and
``google/type`` need not be given. A descriptor is a ``FileDescriptorSet`` (as ``protoc --include_imports
--descriptor_set_out`` writes it) or a ``FileDescriptorProto``, in base64. Each schema has a pool of its own: two
versions of a message never meet. What was compiled is kept for as long as the process lives, for at most
:data:`MOST_KEPT` schemas.

Failure story: a text that does not compile is a :class:`DescriptorError` with the compiler's own words.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

__all__ = ["MOST_KEPT", "DescriptorError", "file_of", "message_at", "message_named"]

MOST_KEPT = 256
_ROOT = "lakecommit_root.proto"
_COMPILE_SECONDS = 60
_MOST_TEXT = 300
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")

Imported = tuple[tuple[str, str], ...]


class DescriptorError(Exception):
    """A schema that cannot be used."""


@lru_cache(MOST_KEPT)
def file_of(text: str, imported: Imported = ()) -> FileDescriptor:
    """The descriptor of a schema.

    :param imported: name and text of each file that it imports, those first that others import
    :raises DescriptorError: it is none, or what it imports is missing
    """
    files = _serialized(text, imported) or _compiled(text, imported)
    pool = DescriptorPool()
    try:
        for file in files:
            pool.Add(file)
        return pool.FindFileByName(files[-1].name)
    except (TypeError, KeyError) as e:
        raise DescriptorError(f"the schema cannot be used: {str(e)[:_MOST_TEXT]}") from e


def message_named(file: FileDescriptor, name: str) -> Descriptor:
    """The message of a file with that full name, or the first one if none is named.

    :raises DescriptorError: there is none
    """
    found = {m.full_name: m for m in _messages(list(file.message_types_by_name.values()))}
    if not found:
        raise DescriptorError("the schema has no message")
    if name and name not in found:
        raise DescriptorError(f"the schema has no message {name!r} (it has {', '.join(found)})")
    return found[name] if name else next(iter(found.values()))


def message_at(file: FileDescriptor, path: Sequence[int]) -> Descriptor:
    """The message that a record names by its place in the file, from the outermost to the innermost.

    :raises DescriptorError: there is none
    """
    messages, found = list(file.message_types_by_name.values()), None
    for index in path:
        if not 0 <= index < len(messages):
            raise DescriptorError(f"the schema has no message at {'.'.join(map(str, path))}")
        found = messages[index]
        messages = list(found.nested_types)
    if found is None:
        raise DescriptorError("a record names no message")
    return found


def _messages(of: Sequence[Descriptor]) -> list[Descriptor]:
    return [m for each in of for m in (each, *_messages(list(each.nested_types)))]


def _serialized(text: str, imported: Imported) -> list[descriptor_pb2.FileDescriptorProto]:
    """The files of a serialized schema, those first that others import; empty if it is none."""
    if not _BASE64.fullmatch(text):
        return []
    try:
        octets = base64.b64decode(text)
        one = descriptor_pb2.FileDescriptorProto.FromString(octets)
        if one.name and (one.message_type or one.enum_type or one.dependency):
            files = [f for _, inner in imported for f in _serialized(inner, ())]
            return [*_known([one, *files]), *files, one]
    except (binascii.Error, ValueError, DecodeError):
        pass
    try:
        files = list(descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(text)).file)
    except (binascii.Error, ValueError, DecodeError):
        return []
    return [*_known(files), *files]


def _known(files: Sequence[descriptor_pb2.FileDescriptorProto]) -> list[descriptor_pb2.FileDescriptorProto]:
    """What the files import of `google/protobuf`, unless they bring it."""
    wanted = {name for f in files for name in f.dependency} - {f.name for f in files}
    return _known_files(tuple(sorted(wanted))) if wanted else []


@lru_cache(MOST_KEPT)
def _known_files(names: tuple[str, ...]) -> list[descriptor_pb2.FileDescriptorProto]:
    text = 'syntax = "proto3";\n' + "".join(f'import "{name}";\n' for name in names)
    return _compiled(text, ())[:-1]


def _compiled(text: str, imported: Imported) -> list[descriptor_pb2.FileDescriptorProto]:
    with tempfile.TemporaryDirectory(prefix="lakecommit-proto-") as folder:
        for name, inner in (*imported, (_ROOT, text)):
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or not path.parts:
                raise DescriptorError(f"the schema imports {name!r}, which is no name of a file")
            place = Path(folder, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(inner, encoding="utf-8")
        return _run(folder)


def _run(folder: str) -> list[descriptor_pb2.FileDescriptorProto]:
    made = Path(folder, "made.descriptors")
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", *(f"-I{path}" for path in _known_places())]
    command += ["--include_imports", f"--descriptor_set_out={made}", _ROOT]
    # Where libraries were shipped beside the interpreter, only this process knows their folder.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_COMPILE_SECONDS, env=environment, check=False, cwd=folder
        )
    except subprocess.TimeoutExpired as e:
        raise DescriptorError(f"the schema was not compiled in {_COMPILE_SECONDS} s") from e
    if done.returncode:
        said = " ".join(done.stderr.replace(f"{_ROOT}:", "").split())
        raise DescriptorError(f"the schema does not compile: {said[-_MOST_TEXT:]}")
    return list(descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes()).file)


def _known_places() -> list[str]:
    """Where `google/protobuf` and `google/type` are."""
    found = find_spec("grpc_tools")
    if found is None or not found.submodule_search_locations:
        raise DescriptorError("a Protobuf schema as text needs the library grpcio-tools: install the extra `protobuf`")
    types = find_spec("google.type")
    places = [str(Path(place).parents[1]) for place in (types.submodule_search_locations or ())] if types else []
    return [str(Path(found.submodule_search_locations[0], "_proto")), *places]
