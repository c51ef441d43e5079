# SPDX-License-Identifier: Apache-2.0
"""A block by the messages that its records name: what is reported all together is what is reported each."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.formats.protobuf import message_framing
from airflow_provider_lakecommit.formats.protobuf.message_framing import message_path, paths_of

START = 5
PATHS = [
    b"\x00",
    b"\x02\x00",
    b"\x02\x02",
    b"\x04\x02\x00",
    b"\x02\x80\x00",
    b"\x80\x00",
    b"\x06\x02\x04\x06",
    b"\x02\x08",
]
BROKEN = [b"", b"\x02", b"\x01", b"\x02\x03", b"\x02\xff\xff\xff\xff\xff", b"\x7e"]
heads = st.one_of(st.sampled_from(PATHS), st.sampled_from([*PATHS, *BROKEN]), st.binary(max_size=4))


@given(st.lists(st.tuples(heads, st.binary(max_size=3)), max_size=30))
def test_each_value_is_found_by_its_own_path(drawn: Sequence[tuple[bytes, bytes]]) -> None:
    values = [b"\x00\x00\x00\x00\x01" + head + rest for head, rest in drawn]
    found, wrong = paths_of(values, START)
    expected: dict[tuple[tuple[int, ...], int], list[int]] = {}
    broken: dict[int, str] = {}
    for i, value in enumerate(values):
        try:
            expected.setdefault(message_path(value, START), []).append(i)
        except ValueError as e:
            broken[i] = str(e)
    assert {key: list(places) for key, places in found.items()} == expected
    assert wrong == broken


def test_of_records_that_begin_alike_one_path_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[bytes]()

    def path(value: bytes, start: int) -> tuple[tuple[int, ...], int]:
        read.append(value)
        return message_path(value, start)

    monkeypatch.setattr(message_framing, "message_path", path)
    values = [b"\x00\x00\x00\x00\x01" + PATHS[i % 3] + bytes([i]) for i in range(90)]
    found, _ = paths_of(values, START)
    assert [len(places) for places in found.values()] == [30, 30, 30]
    assert len(read) == 3
