# SPDX-License-Identifier: Apache-2.0
"""Compile ``.proto`` text to descriptors, by ``protoc`` in a process of its own.

Imports of ``google/protobuf``, ``google/type`` and Confluent's own files need not be given. Messages contain the
compiler's words without folders of this machine. A text that does not compile is a :class:`DescriptorError`, perhaps of
the record that names it. A missing compiler is a :class:`~airflow_provider_lakecommit.exceptions.TableError`; one that
could not run, was killed or timed out a :class:`~airflow_provider_lakecommit.exceptions.CompilerError`: neither is a
record's fault.

Confluent's Java clients of 2020 to 2024 wrote ``map<string, int32> tags`` as ``repeated TagsEntry tags`` and a message
with the option ``map_entry``, which the compiler refuses in a text. The option is replaced by a reserved number
and restored in what is compiled, so that messages keep their places.
"""

from __future__ import annotations

import base64
import errno
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto
from google.protobuf.message import DecodeError

from airflow_provider_lakecommit.exceptions import CompilerError, TableError

Imported = tuple[tuple[str, str], ...]
MOST_TEXT = 300
"""Reported characters of the compiler's output."""
_ROOT = "lakecommit_root.proto"
_GIVEN = "given.descriptors"
_MADE = "made.descriptors"
_COMPILE_SECONDS = 60
_OF_NAMES = (errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL)
"""File system errors that mean that a name is no usable file name."""
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")
_VERDICT = re.compile(r"\S:\d+:\d+: (?!warning)|^lakecommit_root\.proto: ", re.MULTILINE)
"""Matches a line with an error in a text."""


class DescriptorError(Exception):
    """A schema that cannot be used."""


def in_base64(text: str) -> bytes | None:
    if not _BASE64.fullmatch(text):
        return None
    try:
        return base64.b64decode(text)
    except ValueError:
        return None


def file_in(text: str, name: str = "") -> descriptor_pb2.FileDescriptorProto | None:
    """Return the file that a text is in serialized form, as some clients register it."""
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(in_base64(text) or b"")
    except DecodeError:
        return None
    if not file.name or not (file.message_type or file.enum_type or file.dependency):
        return None
    file.name = name or file.name
    return file


def compiled(text: str, imported: Imported) -> list[descriptor_pb2.FileDescriptorProto]:
    """Return the files of a text, the text's own last.

    :param imported: name and text of each file that it imports
    """
    known = _known_paths()
    try:
        with tempfile.TemporaryDirectory(prefix="lakecommit-proto-") as folder:
            serialized = {name: file_in(inner, name) for name, inner in imported}
            texts = [(name, inner) for name, inner in (*imported, (_ROOT, text)) if not serialized.get(name)]
            for name, inner in texts:
                _put(folder, name, inner)
            given = _given(folder, [inner for _, inner in texts], [file for file in serialized.values() if file])
            return _run(folder, [*given, *(f"-I{place}" for place in (".", *known))])
    except OSError as e:
        raise CompilerError("LC4014", f"cannot run the compiler of Protobuf schemas: {e}; the task is retried") from e


def _put(folder: str, name: str, text: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        raise DescriptorError(f"the schema imports {name!r}, which is not a file name")
    try:
        octets = _WRITTEN_OUT.sub(f"reserved {_MARK};", text).encode()
    except UnicodeEncodeError:
        raise DescriptorError("the schema is not valid UTF-8") from None
    place = Path(folder, path)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(octets)
    except OSError as e:
        if e.errno not in _OF_NAMES:
            raise
        raise DescriptorError(f"the schema imports {name!r:.80}, which is not a file name: {e.strerror}") from None


def _given(folder: str, texts: Iterable[str], files: list[descriptor_pb2.FileDescriptorProto]) -> list[str]:
    """Return descriptors of serialized files, and of imports that no registry serves."""
    if any(CONFLUENT in text for text in (*texts, *(name for file in files for name in file.dependency))):
        files = [*map(descriptor_pb2.FileDescriptorProto.FromString, confluent_files()), *files]
    if not files:
        return []
    # What it does not hold, the compiler looks for in its folders.
    descriptors = descriptor_pb2.FileDescriptorSet(file=files)
    Path(folder, _GIVEN).write_bytes(descriptors.SerializeToString())
    return [f"--descriptor_set_in={_GIVEN}"]


def _run(folder: str, options: Sequence[str]) -> list[descriptor_pb2.FileDescriptorProto]:
    command = [sys.executable, "-m", "grpc_tools.protoc", *options, "--include_imports"]
    command += [f"--descriptor_set_out={_MADE}", _ROOT]
    # Where libraries were shipped beside the interpreter, only this process knows their folder.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_COMPILE_SECONDS, env=environment, check=False, cwd=folder
        )
    except subprocess.TimeoutExpired:
        raise CompilerError(
            "LC4015", f"a Protobuf schema was not compiled in {_COMPILE_SECONDS} s: this machine is overloaded"
        ) from None
    if done.returncode:
        raise _error(done.returncode, done.stderr.decode(errors="backslashreplace").replace(f"{folder}/", ""))
    files = list(descriptor_pb2.FileDescriptorSet.FromString(Path(folder, _MADE).read_bytes()).file)
    for file in files:
        _restore_entries(file.message_type)
    return files


def _error(code: int, output: str) -> DescriptorError | CompilerError:
    """Return the error of a failed compilation: the text's own only if the compiler reports one."""
    verdict = [line for line in output.splitlines() if _VERDICT.search(line)]
    if code != 1 or not verdict:
        last = " ".join(output.split())[-MOST_TEXT:]
        return CompilerError(
            "LC4016", f"the compiler of Protobuf schemas ended with code {code} without a verdict: {last}"
        )
    text = " ".join(" ".join(verdict).replace(f"{_ROOT}:", "").split())
    return DescriptorError(f"the schema does not compile: {text[:MOST_TEXT]}")


def _known_paths() -> list[str]:
    """Return the folders of `google/protobuf` and `google/type`."""
    found = find_spec("grpc_tools")
    if found is None or not found.submodule_search_locations:
        raise TableError(
            "LC4017",
            "a Protobuf schema as text needs the library grpcio-tools: install airflow-provider-lakecommit[protobuf], "
            "on executors too",
        )
    types = find_spec("google.type")
    paths = [str(Path(place).parents[1]) for place in (types.submodule_search_locations or ())] if types else []
    return [str(Path(found.submodule_search_locations[0], "_proto")), *paths]


_WRITTEN_OUT = re.compile(r"\boption\s+map_entry\s*=\s*true\s*;")
_MARK = 536_870_911
"""The highest field number; an entry has fields 1 and 2 only."""


def _restore_entries(messages: Iterable[DescriptorProto]) -> None:
    for message in messages:
        numbers = [(reserved.start, reserved.end) for reserved in message.reserved_range]
        if numbers == [(_MARK, _MARK + 1)] and {f.number for f in message.field} == {1, 2}:
            message.ClearField("reserved_range")
            message.options.map_entry = True
        _restore_entries(message.nested_type)


CONFLUENT = "confluent/"
"""Prefix of these files' names."""
_PACKAGE = "confluent_kafka.schema_registry.confluent"
_FILES = ("meta_pb2", "type.decimal_pb2", "type.variant_pb2", "types.decimal_pb2")


@cache
def confluent_files() -> tuple[bytes, ...]:
    """Return Confluent's own files, which no registry serves, as serialized ``FileDescriptorProto``, imports first."""
    found = []
    for name in _FILES:
        with suppress(ModuleNotFoundError):
            found.append(import_module(f"{_PACKAGE}.{name}").DESCRIPTOR.serialized_pb)
    return tuple(found)
