# SPDX-License-Identifier: Apache-2.0
"""Formats of records by name, and what a landing says of how their values become rows.

Contract: pure and light, so that a landing can be checked where no decoder can be loaded. A format is one entry of
:data:`FORMATS`; processes that read records load its factory from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["DEFAULTS", "FORMATS", "ONE_ROW_EACH", "WITH_REGISTRY", "FormatOptions"]

FORMATS = {
    "json": "airflow_provider_lakecommit.formats.decode_json:JsonDecoder",
    "avro": "airflow_provider_lakecommit.avro.decode_avro:AvroDecoder",
    "json_schema": "airflow_provider_lakecommit.formats.decode_framed_json:FramedJsonDecoder",
}
"""Where the factory of a format's decoders is, ``module:name``; it is called as in
:func:`airflow_provider_lakecommit.formats.decoder.decoder_for`.
"""
ONE_ROW_EACH = {"json", "json_schema", "avro"}
"""Formats of which each record that is not rejected is exactly one row."""
WITH_REGISTRY = {"json_schema": "JSON", "avro": "AVRO"}
"""Formats whose records name their schema in a registry, with what a registry calls such schemas. The factory of each
takes a :class:`~airflow_provider_lakecommit.registry.schemas.SchemaSource` as well, which may be missing where no
record is decoded.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatOptions:
    """The fields of a :class:`~airflow_provider_lakecommit.landing.Landing` that are its format's."""

    format: str = "json"
    timestamps: Mapping[str, str] = field(default_factory=dict)
    encodings: Mapping[str, str] = field(default_factory=dict)
    unknown_fields: str = "ignore"
    schema: str = ""


DEFAULTS = FormatOptions()
