# SPDX-License-Identifier: Apache-2.0
"""Formats of records by name, and what a landing says of how their values become rows.

Contract: pure and light, so that a landing can be checked where no decoder can be loaded. A format is one entry of
:data:`FORMATS`; processes that read records load its factory from there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

FORMATS = {
    "json": "airflow_provider_lakecommit.formats.decode_json:JsonDecoder",
    "avro": "airflow_provider_lakecommit.formats.avro.decode_avro:AvroDecoder",
    "protobuf": "airflow_provider_lakecommit.formats.protobuf.decode_protobuf:ProtobufDecoder",
    "json_schema": "airflow_provider_lakecommit.formats.decode_framed_json:FramedJsonDecoder",
    "csv": "airflow_provider_lakecommit.formats.decode_csv:CsvDecoder",
    "raw": "airflow_provider_lakecommit.formats.decode_raw:RawDecoder",
}
"""Where the factory of a format's decoders is, ``module:name``; it is called as in
:func:`airflow_provider_lakecommit.formats.decoder.decoder_for`.
"""
SCHEMA_SOURCES = {
    "json": "airflow_provider_lakecommit.formats.evolution.records:RecordsSource",
    "json_schema": "airflow_provider_lakecommit.formats.evolution.records:FramedRecordsSource",
    "avro": "airflow_provider_lakecommit.formats.evolution.written:WrittenSource",
    "protobuf": "airflow_provider_lakecommit.formats.evolution.messages:MessagesSource",
}
"""Where the factory of what tells the columns of a format's records is, ``module:name``, called as in
:func:`airflow_provider_lakecommit.formats.evolution.wanted.source_for`. A table of a format without one does not
evolve.
"""
ONE_ROW_EACH = {"json", "json_schema", "avro", "protobuf", "csv", "raw"}
"""Formats of which each record that is not rejected is exactly one row; of ``csv`` unless it says otherwise itself
(:meth:`FormatOptions.one_row_each`).
"""
WITH_REGISTRY = {"json_schema": "JSON", "avro": "AVRO", "protobuf": "PROTOBUF"}
"""Formats whose records name their schema in a registry, with what a registry calls such schemas. The factory of each
takes a :class:`~airflow_provider_lakecommit.formats.registry.schemas.SchemaSource` as well, which may be missing where
no record is decoded.
"""
SCHEMA_NAMES = {
    "json_schema": "airflow_provider_lakecommit.formats.schema_names:JsonSchemaNames",
    "avro": "airflow_provider_lakecommit.formats.avro.record_names:RecordNames",
    "protobuf": "airflow_provider_lakecommit.formats.protobuf.message_names:MessageNames",
}
"""Where the factory of what reads the names of a format's schemas is, called as in
:func:`airflow_provider_lakecommit.formats.schema_names.schema_names_for`.
"""

UNCOUNTED = "uncounted"
"""In place of what a landing says of fields that the table lacks: they are passed over. For readings of a few fields of
values that are read as a whole elsewhere.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatOptions:
    """The fields of a :class:`~airflow_provider_lakecommit.landing.Landing` that are its format's."""

    format: str = "json"
    timestamps: Mapping[str, str] = field(default_factory=dict)
    encodings: Mapping[str, str] = field(default_factory=dict)
    unknown_fields: str = "ignore"
    schema: str = ""
    message: str = ""
    csv: Mapping[str, Any] = field(default_factory=dict)
    reader_schema: str = ""

    @property
    def one_row_each(self) -> bool:
        """Return True if each record that is not rejected is exactly one row."""
        return self.format in ONE_ROW_EACH and self.csv.get("rows") != "many"

    def of_columns(self, names: Collection[str]) -> FormatOptions:
        """With the rules of these columns alone."""

        def own(rules: Mapping[str, str]) -> Mapping[str, str]:
            return {path: rule for path, rule in rules.items() if path.partition(".")[0] in names}

        return replace(self, timestamps=own(self.timestamps), encodings=own(self.encodings))


DEFAULTS = FormatOptions()
