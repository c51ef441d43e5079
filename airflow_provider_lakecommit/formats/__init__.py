# SPDX-License-Identifier: Apache-2.0
"""Bytes of records to rows: one decoder per format, and what may be inferred from a sample."""

from airflow_provider_lakecommit.core.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "decode_json": "is_wrapper JsonDecoder",
        "decode_raw": "RawDecoder TextDecoder",
        "decoder": "Decoded Decoder Refusal Reject decoder_for with_positions",
        "evolution.changes": "Change Evolution",
        "evolution.subject_columns": (
            "requested_subjects check_registry create_of newest registered_columns registry_lines subjects_of"
        ),
        "evolution.schema_commit": "EvolveRequest evolve_table",
        "evolution.paths": "dotted paths_in plain",
        "evolution.sampled_columns": "framed_value",
        "evolution.schema": "evolved_schema side_of",
        "evolution.sql_types": "inferred_from_sql",
        "evolution.inferred": "RecordSample InferredTypes source_for",
        "infer_values": "InferredColumn schema_of",
        "registry.client": "SchemaRegistry needed registry_of",
        "registry.framing": "KEY_HEADER framed with_header",
        "registry.schema_source": "JSON RegisteredSchema SchemaSource UnknownSchemaError key_text",
        "sampled": "LARGE MAX_LOCATIONS Node SampledValues sample_values",
        "schema_names": "COLUMN schema_names_for",
        "text_columns": "bad_texts",
        "time_values": "Suspects odd_times",
        "transforms.engine": "given_by",
        "transforms.router": "Block BlockDecoder field_schema OneTable Router",
        "transforms.transform": "TransformDecoder",
        "transforms.unwrap": "UnwrapDecoder",
        "unknown_fields": "cased_names",
    },
)
