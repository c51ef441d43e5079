# SPDX-License-Identifier: Apache-2.0
"""Frozen values as JSON and back, by the types that their classes state.

Contract: :func:`encoder` and :func:`decoder` make, once for each type, a function for values of named tuples,
dataclasses, tuples, frozensets, mappings, enums, UUIDs, bytes, numbers and texts; ``decoder(t)(encoder(t)(x)) == x``.
Fields stand in their order without names. Nothing is run and nothing imported by what is decoded, and a value of
another type than stated is refused.

Failure story: whatever is damaged raises one of :data:`DAMAGE`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import MappingProxyType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

__all__ = ["DAMAGE", "decoder", "encoder"]

DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

Turn = Callable[[Any], Any]
PLAIN = (bool, int, float, str)


@cache
def encoder(hint: Any) -> Turn:
    """What makes JSON of values of a type."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint in PLAIN or hint in (Any, type(None)):
        return _same
    if origin in (Union, UnionType):
        turn = encoder(_only(parts))
        return _same if turn is _same else lambda v: None if v is None else turn(v)
    if hint is UUID:
        return lambda v: v.hex
    if hint is bytes:
        return lambda v: v.hex()
    if isinstance(hint, type) and issubclass(hint, Enum):
        return lambda v: v.value
    if origin in (tuple, frozenset):
        return _list_encoder(parts)
    if origin is not None and issubclass(origin, Mapping):
        key, value = map(encoder, parts)
        return lambda v: [[key(k), value(each)] for k, each in v.items()]
    return _class_encoder(hint)


@cache
def decoder(hint: Any) -> Turn:
    """What makes values of a type of JSON."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint in PLAIN:
        return _checked(hint)
    if hint in (Any, type(None)):
        return _same
    if origin in (Union, UnionType):
        turn = decoder(_only(parts))
        return lambda v: None if v is None else turn(v)
    if hint is UUID:
        return lambda v: UUID(hex=v)
    if hint is bytes:
        return bytes.fromhex
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint
    if origin in (tuple, frozenset):
        return _list_decoder(origin, parts)
    if origin is not None and issubclass(origin, Mapping):
        key, value = map(decoder, parts)
        return lambda v: MappingProxyType({key(k): value(each) for k, each in v})
    return _class_decoder(hint)


def _same(value: Any) -> Any:
    return value


def _only(parts: tuple[Any, ...]) -> Any:
    """The type of an optional value."""
    (only,) = (p for p in parts if p is not type(None))
    return only


def _checked(kind: type) -> Turn:
    def turn(value: Any) -> Any:
        if type(value) is kind:
            return value
        if kind is float and type(value) is int:
            return float(value)
        raise TypeError(f"{value!r:.80} is not of type {kind.__name__}")

    return turn


def _list_encoder(parts: tuple[Any, ...]) -> Turn:
    if len(parts) == 1 or parts[1:] == (...,):
        turn = encoder(parts[0])
        return list if turn is _same else lambda v: [turn(each) for each in v]
    turns = tuple(map(encoder, parts))
    return lambda v: [turn(each) for turn, each in zip(turns, v, strict=True)]


def _list_decoder(kind: Callable[[Any], Any], parts: tuple[Any, ...]) -> Turn:
    if len(parts) == 1 or parts[1:] == (...,):
        turn = decoder(parts[0])
        return lambda v: kind(turn(each) for each in v)
    turns = tuple(map(decoder, parts))
    return lambda v: tuple(turn(each) for turn, each in zip(turns, v, strict=True))


def _fields(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    if is_dataclass(kind):
        return {f.name: hints[f.name] for f in fields(kind) if f.init}
    return {name: hints[name] for name in kind._fields}


def _class_encoder(kind: Any) -> Turn:
    turns = [(name, encoder(hint)) for name, hint in _fields(kind).items()]
    return lambda v: [turn(getattr(v, name)) for name, turn in turns]


def _class_decoder(kind: Any) -> Turn:
    turns = [(name, decoder(hint)) for name, hint in _fields(kind).items()]
    return lambda v: kind(**{name: turn(each) for (name, turn), each in zip(turns, v, strict=True)})
