# SPDX-License-Identifier: Apache-2.0
"""Rewrite JSON objects for maps as lists of pairs, the form that the parser can fill.

``{"a":1,"b":2}`` becomes ``[{"key":"a","value":1},{"key":"b","value":2}]`` wherever the table has a map; all other
bytes are copied, so the parser alone decides what each column takes. Keys of number or boolean type lose their quotes.
Copied values are whole and their surroundings are checked, so the result is valid exactly if the record was; the order
of members, repeated keys included, is kept. Regular expressions skip members without maps. Only the table's own levels
are entered, so depth is bounded.

Invalid JSON, a map that is no object and an invalid key are refusals of the record alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from airflow_provider_lakecommit.formats.columns import Column
from airflow_provider_lakecommit.formats.decoder import Refusal

_WS = rb"[ \t\r\n]*+"
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_INSIDE = rb'(?:[^"{}\[\]]++|' + _STRING + rb")*+"
_WITHIN = rb'(?:[^"{}\[\]]++|' + _STRING + rb"|\{" + _INSIDE + rb"\}|\[" + _INSIDE + rb"\])*+"
# A value at most two levels deep, as nearly all are. Others are followed bracket by bracket.
_FLAT = rb'(?:[^ \t\r\n,:{}\[\]"]++|' + _STRING + rb"|\{" + _WITHIN + rb"\}|\[" + _WITHIN + rb"\])"
_FLAT_VALUE = re.compile(_FLAT, re.DOTALL)
_PAIR = _WS + rb"(" + _STRING + rb")" + _WS + rb":" + _WS + rb"(" + _FLAT + rb")" + _WS
_PAIRS = re.compile(_PAIR + rb",?", re.DOTALL)
_FLAT_MAP = re.compile(rb"\{(?:" + _PAIR + rb"(?:,(?!" + _WS + rb"\})|(?=\})))++\}", re.DOTALL)
_BRACKET = re.compile(_STRING + rb'|[{}\[\]"]', re.DOTALL)
_MEMBER = re.compile(_WS + rb"(" + _STRING + rb")" + _WS + rb":" + _WS, re.DOTALL)
_AFTER_MEMBER = re.compile(_WS + rb"([,}])")
_AFTER_ELEMENT = re.compile(_WS + rb"([,\]])")
_EMPTY_OBJECT = re.compile(rb"\{" + _WS + rb"\}")
_EMPTY_LIST = re.compile(rb"\[" + _WS + rb"\]")
_SPACE = re.compile(_WS)
_ESCAPABLE = re.compile(rb'["\\/\x00-\x1f]')
_BARE = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false")
_QUOTE, _OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = b'"{}[]'
_CLOSING = {_OPEN: _CLOSE, _OPEN_LIST: _CLOSE_LIST}


class _Lost(Exception):
    """The text is not valid JSON."""


@dataclass(frozen=True, slots=True)
class _Struct:
    """An object with a map somewhere below it; ``others`` matches any number of members without one."""

    members: dict[bytes, _Node]
    others: re.Pattern[bytes]


@dataclass(frozen=True, slots=True)
class _List:
    element: _Node


@dataclass(frozen=True, slots=True)
class _Map:
    path: str
    bare: bool
    value: _Node | None


_Node = _Struct | _List | _Map


def rewriter_for(columns: Sequence[Column]) -> MapRewriter | None:
    """Return the rewriter for a table with these columns, if one of them holds a map."""
    node = _struct_of(columns)
    return MapRewriter(node) if node is not None else None


class MapRewriter:
    """Rewrites records for one table."""

    def __init__(self, root: _Struct) -> None:
        self._root = root
        self._names = tuple(b'"%b"' % name for name in root.members)
        # A name of such characters cannot be written with an escape other than \\u.
        self._plain = not any(_ESCAPABLE.search(name) for name in root.members)

    def rewrite(self, value: bytes) -> bytes:
        """Return a record with its maps as lists of pairs."""
        if self._plain and b"\\u" not in value and not any(name in value for name in self._names):
            return value
        out: list[bytes] = []
        try:
            start = _end_of(_SPACE, value, 0)
            end = _rewrite_struct(self._root, value, start, out)
            if _end_of(_SPACE, value, end) != len(value):
                raise _Lost
        except (_Lost, IndexError):
            raise _not_json(value) or Refusal("not_json", None, "the value is not a JSON object") from None
        except Refusal as refusal:
            raise _not_json(value) or refusal from None
        return b"".join((value[:start], *out, value[end:]))


def _node_of(column: Column) -> _Node | None:
    if pa.types.is_list(column.target.type):
        element = _node_of(column.children[0])
        return None if element is None else _List(element)
    if column.is_map:
        key, value = column.children
        return _Map(column.path, not pa.types.is_string(key.wire), _node_of(value))
    return _struct_of(column.children)


def _struct_of(columns: Iterable[Column]) -> _Struct | None:
    members = {c.name.encode(): node for c in columns if (node := _node_of(c)) is not None}
    if not members:
        return None
    # Keys with a backslash are left to the closer look: they may spell one of the names.
    names = b"|".join(re.escape(name) for name in members)
    key = rb'"(?!(?:' + names + rb')")[^"\\]*+"'
    member = _WS + key + _WS + rb":" + _WS + _FLAT + _WS
    return _Struct(members, re.compile(rb"(?:" + member + rb"(?:,|(?=\})))*+", re.DOTALL))


def _end_of(pattern: re.Pattern[bytes], text: bytes, at: int) -> int:
    match = pattern.match(text, at)
    if match is None:
        raise _Lost
    return match.end()


def _value_end(text: bytes, at: int) -> int:
    """Return the end of the value at this position, with all brackets and quotes closed."""
    flat = _FLAT_VALUE.match(text, at)
    if flat is not None:
        return flat.end()
    if text[at] not in _CLOSING:
        raise _Lost
    due = bytearray()
    for match in _BRACKET.finditer(text, at):
        octet = text[match.start()]
        if octet in _CLOSING:
            due.append(_CLOSING[octet])
        elif octet != _QUOTE:
            if due.pop() != octet:
                raise _Lost
            if not due:
                return match.end()
        elif match.end() == match.start() + 1:
            raise _Lost
    raise _Lost


def _rewrite(node: _Node, text: bytes, at: int, out: list[bytes]) -> int:
    """Append the rewritten value at this position; return its end."""
    if text.startswith(b"null", at):
        out.append(b"null")
        return at + 4
    if isinstance(node, _Map):
        return _rewrite_map(node, text, at, out)
    if text[at] != (_OPEN if isinstance(node, _Struct) else _OPEN_LIST):
        # Not what the table has here: as it is, for the parser to say so. It holds nothing for a map.
        end = _value_end(text, at)
        out.append(text[at:end])
        return end
    return _rewrite_struct(node, text, at, out) if isinstance(node, _Struct) else _rewrite_list(node, text, at, out)


def _rewrite_struct(node: _Struct, text: bytes, at: int, out: list[bytes]) -> int:
    if text[at] != _OPEN:
        raise _Lost
    copied, at = at, at + 1
    while True:
        at = _end_of(node.others, text, at)
        if text[at] == _CLOSE:
            # What lies behind is copied as it is, a comma too many included, for the parser to refuse.
            out.append(text[copied : at + 1])
            return at + 1
        member = _MEMBER.match(text, at)
        if member is None:
            if (empty := _EMPTY_OBJECT.match(text, copied)) is not None:
                out.append(empty[0])
                return empty.end()
            raise _Lost
        inner = node.members.get(_name(member[1]))
        if inner is None:
            at = _value_end(text, member.end())
        else:
            out.append(text[copied : member.end()])
            copied = at = _rewrite(inner, text, member.end(), out)
        after = _AFTER_MEMBER.match(text, at)
        if after is None:
            raise _Lost
        at = after.end()
        if after[1] == b"}":
            out.append(text[copied:at])
            return at


def _rewrite_list(node: _List, text: bytes, at: int, out: list[bytes]) -> int:
    if (empty := _EMPTY_LIST.match(text, at)) is not None:
        out.append(b"[]")
        return empty.end()
    out.append(b"[")
    at += 1
    while True:
        at = _rewrite(node.element, text, _end_of(_SPACE, text, at), out)
        after = _AFTER_ELEMENT.match(text, at)
        if after is None:
            raise _Lost
        out.append(after[1])
        at = after.end()
        if after[1] == b"]":
            return at


def _rewrite_map(node: _Map, text: bytes, at: int, out: list[bytes]) -> int:
    if text[at] != _OPEN:
        raise Refusal("wrong_value", node.path, f"column {node.path}: a map is written as a JSON object")
    if node.value is None and (flat := _FLAT_MAP.match(text, at)) is not None:
        pairs = _PAIRS.findall(text, at + 1, flat.end() - 1)
        if node.bare:
            pairs = [(_bare(node, key), value) for key, value in pairs]
        out.append(b"[%b]" % b",".join([b'{"key":%b,"value":%b}' % pair for pair in pairs]))
        return flat.end()
    if (empty := _EMPTY_OBJECT.match(text, at)) is not None:
        out.append(b"[]")
        return empty.end()
    opening = b"["
    while True:
        member = _MEMBER.match(text, at + 1)
        if member is None:
            raise _Lost
        key = _bare(node, member[1]) if node.bare else member[1]
        at = member.end()
        if node.value is None:
            end = _value_end(text, at)
            out.append(b'%b{"key":%b,"value":%b}' % (opening, key, text[at:end]))
        else:
            out.append(b'%b{"key":%b,"value":' % (opening, key))
            end = _rewrite(node.value, text, at, out)
            out.append(b"}")
        after = _AFTER_MEMBER.match(text, end)
        if after is None:
            raise _Lost
        at = after.end() - 1
        opening = b","
        if after[1] == b"}":
            out.append(b"]")
            return after.end()


def _bare(node: _Map, quoted: bytes) -> bytes:
    key = quoted[1:-1]
    if _BARE.fullmatch(key) is None:
        path = f"{node.path}.key"
        raise Refusal("wrong_value", path, f"column {path}: {key.decode(errors='replace')!r} is not a valid key")
    return key


def _name(quoted: bytes) -> bytes:
    if b"\\" not in quoted:
        return quoted[1:-1]
    try:
        return str(json.loads(quoted)).encode(errors="surrogatepass")
    except ValueError:
        raise _Lost from None


def _not_json(value: bytes) -> Refusal | None:
    try:
        json.loads(value.decode())
    except UnicodeDecodeError:
        return Refusal("not_json", None, "the value is not valid UTF-8")
    except ValueError as e:
        return Refusal("not_json", None, f"the value is not valid JSON: {e}")
    except RecursionError:
        return Refusal("not_json", None, "the value is not valid JSON, or nested too deeply")
    return None
