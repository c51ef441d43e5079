# SPDX-License-Identifier: Apache-2.0
"""The envelope: any values survive it, it stays small, and corruption is always the same clear error."""

from __future__ import annotations

import base64
import json
import random
import zlib
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.control.packed_text import COMPRESS_ABOVE, VERSION, number, pack, text, unpack
from airflow_provider_lakecommit.exceptions import WireError
from tests.support.values import FOREIGN, STEADY, value_or_error

LIMIT = 100_000
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
LARGE = {"x": "ab" * COMPRESS_ABOVE}


def packed(values: dict[str, object], limit: int = LIMIT) -> str:
    return pack(values, what="a thing", limit=limit, remedy="make it smaller")


def zipped(raw: str) -> str:
    return "z:" + base64.b64encode(zlib.compress(raw.encode())).decode()


@STEADY
@given(st.dictionaries(st.text(max_size=8).filter(lambda k: k != "v"), JSON, max_size=5))
def test_values_survive(values: dict[str, object]) -> None:
    assert unpack(packed(values), what="a thing") == {"v": VERSION, **values}


def test_a_small_text_is_readable() -> None:
    assert packed({"a": 1}) == '{"v":1,"a":1}'


def test_a_large_text_is_compressed_and_survives_as_text_and_as_bytes() -> None:
    out = packed(LARGE)
    assert out.startswith("z:")
    assert len(out) < COMPRESS_ABOVE
    assert unpack(out, what="a thing") == unpack(out.encode(), what="a thing") == {"v": VERSION, **LARGE}


def test_the_text_is_plain_ascii() -> None:
    assert packed({"a": "é \x00 \ud800"}).isascii()


def test_over_the_limit_reports_how_much_and_the_remedy() -> None:
    noise = "".join(random.Random(0).choices("abcdefghijklmnop", k=40_000))
    with pytest.raises(WireError, match=r"^a thing takes \d+ bytes, the limit is 9000: make it smaller \[LC2341\]$"):
        packed({"x": noise}, limit=9_000)


def test_exactly_the_limit_is_fine() -> None:
    assert packed({"a": 1}, limit=len('{"v":1,"a":1}'))


@pytest.mark.parametrize("version", [VERSION, VERSION - 1])
def test_this_version_and_the_one_before_are_read(version: int) -> None:
    assert unpack(json.dumps({"v": version, "a": 1}), what="a thing")["a"] == 1


def test_a_later_version_requests_an_upgrade() -> None:
    with pytest.raises(WireError, match="LC2344"):
        unpack('{"v":2}', what="a thing")


def test_a_version_before_the_last_one_is_refused() -> None:
    with pytest.raises(WireError, match="LC2345"):
        unpack('{"v":-1}', what="a thing")


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param("", id="nothing"),
        pytest.param("{", id="cut off"),
        pytest.param("[1]", id="no object"),
        pytest.param('{"a":1}', id="no version"),
        pytest.param('{"v":true}', id="a version that is no number"),
        pytest.param('{"v":"1"}', id="a version that is a text"),
        pytest.param("[" * 100_000, id="too deep"),
        pytest.param('{"v":' + "1" * 10_000 + "}", id="a number without end"),
        pytest.param("z:", id="compressed nothing"),
        pytest.param("z:é", id="compressed, no base64"),
        pytest.param("z:" + base64.b64encode(b"no deflate").decode(), id="compressed, no deflate"),
        pytest.param(zipped('{"v":1,"a":"é"}'), id="compressed, not ascii"),
        pytest.param(zipped('{"v":1}')[:-8], id="compressed, cut off"),
        pytest.param(zipped(" " * (80 << 20)), id="compressed, too large"),
    ],
)
def test_corruption_is_named(raw: str) -> None:
    with pytest.raises(WireError, match="LC2343"):
        unpack(raw, what="a thing")


@STEADY
@given(st.binary(max_size=40) | st.binary(max_size=40).map(lambda b: b"z:" + base64.b64encode(b)))
def test_no_bytes_do_worse_than_a_wire_error(raw: bytes) -> None:
    assert isinstance(value_or_error(partial(unpack, what="a thing"), raw), (dict, WireError))


@STEADY
@given(FOREIGN)
def test_number_and_text_take_nothing_else(value: object) -> None:
    for check, kind in ((number, int), (text, str)):
        if type(value) is kind:
            assert check(value) is value
        else:
            with pytest.raises(TypeError):
                check(value)
