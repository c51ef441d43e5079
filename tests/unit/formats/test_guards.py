# SPDX-License-Identifier: Apache-2.0
"""A block is looked through in pieces: what is dangerous is seen wherever it stands, also across two of them."""

from __future__ import annotations

import pytest

from airflow_provider_lakecommit.formats import guards
from airflow_provider_lakecommit.formats.decoder import Refusal
from airflow_provider_lakecommit.formats.guards import block_text

SMUGGLED = b'{}}null{"r":{}'


@pytest.mark.parametrize("at", range(-len(SMUGGLED), 9))
@pytest.mark.parametrize("value", [SMUGGLED, SMUGGLED.replace(b"n", b" \n\tn")], ids=["tight", "spaced"])
def test_a_document_null_is_found_on_the_border_of_two_pieces(
    at: int, value: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "_CACHED", 64)
    filler = b'{"a":"%s"}' % (b"x" * (64 + at - len(b'{"r":{"a":""}}\n{"r":')))

    with pytest.raises(Refusal, match="not one JSON document"):
        block_text([filler, value, b"{}"])
    assert block_text([filler, b"{}"]) == b'{"r":%s}\n{"r":{}}\n' % filler


@pytest.mark.parametrize("values", [[b'{"a":1}'], [b'{"a":1}', b"{}"], [b"{}", b'{"a":"\xc3\xa9"}', b"[]"]])
def test_the_text_is_every_value_in_its_wrapper(values: list[bytes]) -> None:
    assert block_text(values) == b"".join(b'{"r":%s}\n' % v for v in values)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_is_not_utf8_is_refused_and_no_value_is_changed(place: int) -> None:
    values = [b'{"a":"b"}'] * 3
    values[place] = b'{"a":"\xff"}'
    before = list(values)

    with pytest.raises(Refusal, match="not valid UTF-8"):
        block_text(values)
    assert values == before
