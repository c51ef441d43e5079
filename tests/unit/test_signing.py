# SPDX-License-Identifier: Apache-2.0
"""Signatures of control records: what they cover, what they do not let through, how keys are given and changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.kafka.config import LastError, client_config
from airflow_provider_lakecommit.redaction import is_secret, redacted
from airflow_provider_lakecommit.signing import HEADER, KEY, OTHER_KEY, UNSIGNED_BELOW, Place, SigningKeys, resolved

OLD, NEW = "o" * 32, "n" * 32
PLACE = Place(cluster_id="c1", topic="control", partition=3)
HEADERS = [("lakecommit", b'{"v":1}'), ("trace", b"1")]
Headers = list[tuple[str, bytes]]


def keys(**settings: str) -> SigningKeys:
    found = SigningKeys.of({KEY: OLD, **settings})
    assert found is not None
    return found


def signed(by: SigningKeys | None = None, headers: Headers = HEADERS) -> Headers:
    return [*headers, (by or keys()).signature(PLACE, b"k", b"v", headers)]


def test_a_record_that_was_signed_is_verified() -> None:
    assert keys().doubt(PLACE, b"k", b"v", signed()) is None


def test_without_a_key_there_is_nothing_to_sign_with() -> None:
    assert SigningKeys.of({"bootstrap.servers": "b"}) is None


@pytest.mark.parametrize(
    ("place", "key", "value"),
    [
        (replace(PLACE, cluster_id="c2"), b"k", b"v"),
        (replace(PLACE, topic="control2"), b"k", b"v"),
        (replace(PLACE, partition=4), b"k", b"v"),
        (PLACE, b"k2", b"v"),
        (PLACE, None, b"v"),
        (PLACE, b"k", b"w"),
        (PLACE, b"k", None),
        # The same bytes with another border between them.
        (PLACE, b"kv", b""),
        (replace(PLACE, cluster_id="c1control", topic=""), b"k", b"v"),
    ],
)
def test_another_record_or_position_is_not(place: Place, key: bytes | None, value: bytes | None) -> None:
    assert "is not that of this record" in str(keys().doubt(place, key, value, signed()))


@pytest.mark.parametrize(
    "headers",
    [
        [("lakecommit", b'{"v":2}')],
        [],
        [("lakecommit", b'{"v":1}'), ("lakecommit", b'{"v":1}')],
        [("lakecommit-x", b""), ("lakecommit", b'{"v":1}')],
        [("lakecommit", b'{"v":1}lakecommit-x')],
    ],
)
def test_headers_of_ours_are_signed(headers: Headers) -> None:
    assert keys().doubt(PLACE, b"k", b"v", [*headers, signed()[-1]]) is not None


def test_headers_of_others_may_come_and_go() -> None:
    assert keys().doubt(PLACE, b"k", b"v", [("b3", b"x"), *signed(), ("trace", b"2")]) is None


def test_the_order_of_headers_of_the_same_name_counts() -> None:
    twice = [("lakecommit", b"1"), ("lakecommit", b"2")]
    signature = signed(headers=twice)[-1]
    assert keys().doubt(PLACE, b"k", b"v", [*twice[::-1], signature]) is not None


@pytest.mark.parametrize(
    ("signatures", "doubt"),
    [
        ([], "it is not signed"),
        ([b""], "(damaged)"),
        ([b"v1:\xff"], "(damaged)"),
        ([b"v2:00000000:00"], "signature v2:00000000 is not"),
        ([signed()[-1][1]] * 2, "it has 2 signatures"),
        ([signed()[-1][1], b"v1"], "it has 2 signatures"),
        ([signed()[-1][1].upper()], "(damaged)"),
        ([signed()[-1][1] + b" "], "(damaged)"),
        ([signed()[-1][1][:-1]], "is not that of this record"),
    ],
)
def test_what_is_no_signature(signatures: list[bytes], doubt: str) -> None:
    assert doubt in str(keys().doubt(PLACE, b"k", b"v", [*HEADERS, *((HEADER, s) for s in signatures)]))


def test_a_signature_reports_its_version_and_key_and_nothing_of_the_key() -> None:
    name, value = signed()[-1]
    version, key_id, mac = value.decode().split(":")
    assert (name, version, len(key_id), len(mac)) == ("lakecommit-signature", "v1", 8, 64)
    assert OLD not in repr(keys())
    assert key_id in repr(keys())


def test_keys_are_changed_without_a_record_that_is_not_verified() -> None:
    before, both = keys(), keys(**{OTHER_KEY: NEW})
    turned, after = keys(**{KEY: NEW, OTHER_KEY: OLD}), keys(**{KEY: NEW})
    readers = [(before, [before, both]), (both, [before, both, turned]), (turned, [both, turned, after])]
    for writer, steps in readers:
        assert [reader.doubt(PLACE, b"k", b"v", signed(writer)) for reader in steps] == [None] * len(steps)
    assert after.doubt(PLACE, b"k", b"v", signed(before)) is not None


def test_what_needs_no_signature_is_stated_by_topic_id_partition_and_offset() -> None:
    stated = keys(**{UNSIGNED_BELOW: "abc_D-1/3:100, abc_D-1/4:7"})
    places = [("abc_D-1", 3, 99), ("abc_D-1", 3, 100), ("abc_D-1", 4, 7), ("abc_D-1", 5, 0), ("another", 3, 0)]
    assert [stated.needed(*place) for place in places] == [False, True, True, True, True]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({KEY: "short"}, "at least 32 characters.*LC8703"),
        ({KEY: OLD, OTHER_KEY: "short"}, "at least 32 characters.*LC8703"),
        ({OTHER_KEY: OLD}, "the key that signs is missing.*LC8702"),
        ({KEY: OLD, UNSIGNED_BELOW: "100"}, "TOPIC_ID/PARTITION:OFFSET.*LC8705"),
    ],
)
def test_keys_that_cannot_be_meant(settings: dict[str, str], message: str) -> None:
    with pytest.raises(SpecError, match=message) as e:
        SigningKeys.of(settings)
    assert OLD not in str(e.value)


def test_a_key_may_be_in_the_environment_or_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text(f"{NEW}\n")
    monkeypatch.setenv("A_KEY", OLD)
    settings = {KEY: "${A_KEY}", OTHER_KEY: f"${{file:{tmp_path}/key}}", "client.id": "${A_KEY}"}
    assert resolved(settings) == {KEY: OLD, OTHER_KEY: NEW, "client.id": "${A_KEY}"}
    for missing in ("${NO_SUCH_KEY}", "${file:/no/such/file}"):
        with pytest.raises(SpecError, match="LC8704"):
            resolved({KEY: missing})


def test_the_key_is_a_secret_that_no_client_is_given() -> None:
    assert is_secret(KEY)
    assert is_secret(OTHER_KEY)
    assert not is_secret(UNSIGNED_BELOW)
    settings = {"bootstrap.servers": "b", KEY: OLD, OTHER_KEY: NEW, UNSIGNED_BELOW: "a/1:2"}
    assert not [k for k in client_config(settings, LastError()) if k.startswith("lakecommit.")]
    assert redacted(f"it is {OLD}", settings) == "it is ***"
