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
from collections.abc import Callable, Iterable, Mapping
from functools import partial

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


Rewrite = Callable[[bytes, int, list[bytes]], int]
"""Appends the rewritten value at a position of a text, and returns its end."""


def rewriter_for(columns: Iterable[Column]) -> Callable[[bytes], bytes] | None:
    """Return what rewrites the records of a table with these columns, if one of them holds a map.

    It raises a :class:`~airflow_provider_lakecommit.formats.decoder.Refusal` for a record that is no row of the table.
    """
    if not (members := _members(columns)):
        return None
    names = tuple(b'"%b"' % name for name in members)
    # A name of such characters cannot be written with an escape other than \\u.
    plain = not any(_ESCAPABLE.search(name) for name in members)
    others = _others(members)

    def rewrite(value: bytes) -> bytes:
        if plain and b"\\u" not in value and not any(name in value for name in names):
            return value
        out: list[bytes] = []
        try:
            start = _end_of(_SPACE, value, 0)
            if value[start] != _OPEN:
                raise _Lost
            end = _rewrite_struct(members, others, value, start, out)
            if _end_of(_SPACE, value, end) != len(value):
                raise _Lost
        except (_Lost, IndexError):
            raise _not_json(value) or Refusal("not_json", None, "the value is not a JSON object") from None
        except Refusal as refusal:
            raise _not_json(value) or refusal from None
        return b"".join((value[:start], *out, value[end:]))

    return rewrite


def _members(columns: Iterable[Column]) -> dict[bytes, Rewrite]:
    """Return the fields of an object with a map in them."""
    return {c.name.encode(): rewrite for c in columns if (rewrite := _rewriter(c)) is not None}


def _rewriter(column: Column) -> Rewrite | None:
    if column.is_map:
        key, value = column.children
        return partial(_rewrite_map, column.path, not pa.types.is_string(key.wire), _rewriter(value))
    if pa.types.is_list(column.target.type):
        element = _rewriter(column.children[0])
        return None if element is None else partial(_rewrite_list, element)
    members = _members(column.children)
    return partial(_rewrite_struct, members, _others(members)) if members else None


def _others(members: Iterable[bytes]) -> re.Pattern[bytes]:
    """Return a pattern for any number of other members of the object.

    Keys with a backslash are left to the closer look: they may spell one of the names.
    """
    names = b"|".join(re.escape(name) for name in members)
    key = rb'"(?!(?:' + names + rb')")[^"\\]*+"'
    member = _WS + key + _WS + rb":" + _WS + _FLAT + _WS
    return re.compile(rb"(?:" + member + rb"(?:,|(?=\})))*+", re.DOTALL)


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


def _copied(text: bytes, at: int, out: list[bytes]) -> int:
    """Append a null, or a value that is not what the table has here, for the parser to say so. It has no map in it."""
    end = at + 4 if text.startswith(b"null", at) else _value_end(text, at)
    out.append(text[at:end])
    return end


def _rewrite_struct(
    members: Mapping[bytes, Rewrite], others: re.Pattern[bytes], text: bytes, at: int, out: list[bytes]
) -> int:
    if text[at] != _OPEN:
        return _copied(text, at, out)
    copied, at = at, at + 1
    while True:
        at = _end_of(others, text, at)
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
        rewrite = members.get(_name(member[1]))
        if rewrite is None:
            at = _value_end(text, member.end())
        else:
            out.append(text[copied : member.end()])
            copied = at = rewrite(text, member.end(), out)
        after = _AFTER_MEMBER.match(text, at)
        if after is None:
            raise _Lost
        at = after.end()
        if after[1] == b"}":
            out.append(text[copied:at])
            return at


def _rewrite_list(element: Rewrite, text: bytes, at: int, out: list[bytes]) -> int:
    if text[at] != _OPEN_LIST:
        return _copied(text, at, out)
    if (empty := _EMPTY_LIST.match(text, at)) is not None:
        out.append(b"[]")
        return empty.end()
    out.append(b"[")
    at += 1
    while True:
        at = element(text, _end_of(_SPACE, text, at), out)
        after = _AFTER_ELEMENT.match(text, at)
        if after is None:
            raise _Lost
        out.append(after[1])
        at = after.end()
        if after[1] == b"]":
            return at


def _rewrite_map(path: str, bare: bool, value: Rewrite | None, text: bytes, at: int, out: list[bytes]) -> int:
    """:param bare: True if keys lose their quotes"""
    if text.startswith(b"null", at):
        return _copied(text, at, out)
    if text[at] != _OPEN:
        raise Refusal("wrong_value", path, f"column {path}: a map is written as a JSON object")
    if value is None and (flat := _FLAT_MAP.match(text, at)) is not None:
        found = _PAIRS.findall(text, at + 1, flat.end() - 1)
        pairs = [(_bare(path, key), each) for key, each in found] if bare else found
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
        key = _bare(path, member[1]) if bare else member[1]
        at = member.end()
        if value is None:
            end = _value_end(text, at)
            out.append(b'%b{"key":%b,"value":%b}' % (opening, key, text[at:end]))
        else:
            out.append(b'%b{"key":%b,"value":' % (opening, key))
            end = value(text, at, out)
            out.append(b"}")
        after = _AFTER_MEMBER.match(text, end)
        if after is None:
            raise _Lost
        at = after.end() - 1
        opening = b","
        if after[1] == b"}":
            out.append(b"]")
            return after.end()


def _bare(column: str, quoted: bytes) -> bytes:
    key = quoted[1:-1]
    if _BARE.fullmatch(key) is None:
        path = f"{column}.key"
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
