# SPDX-License-Identifier: Apache-2.0
"""Files that a client registered in serialized form and a registry gives back so, alone and among texts."""

from __future__ import annotations

import itertools
from base64 import b64encode

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from airflow_provider_lakecommit.formats.protobuf.compiler import DescriptorError
from airflow_provider_lakecommit.formats.protobuf.descriptors import file_of

HEAD = 'syntax = "proto3"; package shop;'
MONEY = f'{HEAD} import "google/protobuf/timestamp.proto"; message Money {{ google.protobuf.Timestamp at = 1; }}'
ITEM = f'{HEAD} import "money.proto"; import "confluent/meta.proto"; message Item {{ Money price = 1; }}'
ORDER = f'{HEAD} import "money.proto"; import "item.proto"; message Order {{ Money total = 1; Item item = 2; }}'
IMPORTED = (("money.proto", MONEY), ("item.proto", ITEM))


def serialized(text: str, name: str) -> str:
    made = FileDescriptorProto()
    file_of(text, tuple((n, inner) for n, inner in IMPORTED if n != name)).CopyToProto(made)
    made.name = name
    return b64encode(made.SerializeToString()).decode()


@pytest.mark.parametrize("forms", list(itertools.product((False, True), repeat=3)))
def test_files_import_each_other_whatever_their_form(forms: tuple[bool, ...]) -> None:
    names = [("money.proto", MONEY), ("item.proto", ITEM), ("order.proto", ORDER)]
    money, item, order = (serialized(t, n) if form else t for form, (n, t) in zip(forms, names, strict=True))
    found = file_of(order, (("money.proto", money), ("item.proto", item)))
    message = found.message_types_by_name["Order"].fields_by_name["item"].message_type
    assert message.fields_by_name["price"].message_type.fields_by_name["at"].message_type.name == "Timestamp"


def test_a_file_goes_by_the_name_that_it_is_imported_by() -> None:
    order, item = (text.replace("money.proto", "m.proto") for text in (ORDER, ITEM))
    imported = (("m.proto", serialized(MONEY, "another.proto")), ("item.proto", item))
    assert file_of(order, imported).message_types_by_name["Order"]


def test_a_file_that_is_missing_is_named() -> None:
    with pytest.raises(DescriptorError, match=r"money\.proto"):
        file_of(serialized(ORDER, "order.proto"), (("item.proto", serialized(ITEM, "item.proto")),))
