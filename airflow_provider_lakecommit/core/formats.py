# SPDX-License-Identifier: Apache-2.0
"""Record formats by name, and the decoding options of a landing.

Kept light, so that a landing can be checked where no decoder can be loaded. Processes that read records load the
factory named in :data:`FORMATS`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

FORMATS = {
    "json": "airflow_provider_lakecommit.formats.decode_json:JsonDecoder",
    "avro": "airflow_provider_lakecommit.formats.avro.decode_avro:AvroDecoder",
    "protobuf": "airflow_provider_lakecommit.formats.protobuf.decode_protobuf:ProtobufDecoder",
    "json_schema": "airflow_provider_lakecommit.formats.decode_json:FramedJsonDecoder",
    "csv": "airflow_provider_lakecommit.formats.decode_csv:CsvDecoder",
    "raw": "airflow_provider_lakecommit.formats.decode_raw:RawDecoder",
}
"""Decoder factories (``module:name``), called by :func:`airflow_provider_lakecommit.formats.decoder.decoder_for`."""
SCHEMA_SOURCES = {
    "json": "airflow_provider_lakecommit.formats.evolution.sampled_columns:RecordsSource",
    "json_schema": "airflow_provider_lakecommit.formats.evolution.sampled_columns:RecordsSource",
    "avro": "airflow_provider_lakecommit.formats.evolution.written:WrittenSource",
    "protobuf": "airflow_provider_lakecommit.formats.evolution.messages:MessagesSource",
}
"""Factories of what infers columns from records, called by
:func:`airflow_provider_lakecommit.formats.evolution.inferred.source_for`. Tables of other formats do not evolve.
"""
ONE_ROW_EACH = {"json", "json_schema", "avro", "protobuf", "csv", "raw"}
"""Formats with exactly one row per accepted record; for ``csv`` see :meth:`FormatOptions.one_row_each`."""
WITH_REGISTRY = {"json_schema": "JSON", "avro": "AVRO", "protobuf": "PROTOBUF"}
"""Formats whose records name a registered schema, with the registry's name for the kind. Their factories also take a
:class:`~airflow_provider_lakecommit.formats.registry.schema_source.SchemaSource`, if records are decoded.
"""
SCHEMA_NAMES = {
    "json_schema": "airflow_provider_lakecommit.formats.schema_names:json_schema_names",
    "avro": "airflow_provider_lakecommit.formats.schema_names:record_names",
    "protobuf": "airflow_provider_lakecommit.formats.protobuf.message_framing:message_names",
}
"""Factories of schema name readers, see :func:`airflow_provider_lakecommit.formats.schema_names.schema_names_for`."""

UNCOUNTED = "uncounted"
"""Value of ``unknown_fields`` that skips them silently, for reading a few fields of values decoded elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatOptions:
    """The decoding fields of a :class:`~airflow_provider_lakecommit.landing.Landing`."""

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
        """Return the options with the rules of these columns alone."""

        def own(rules: Mapping[str, str]) -> Mapping[str, str]:
            return {path: rule for path, rule in rules.items() if path.partition(".")[0] in names}

        return replace(self, timestamps=own(self.timestamps), encodings=own(self.encodings))


DEFAULTS = FormatOptions()
