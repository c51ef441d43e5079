# SPDX-License-Identifier: Apache-2.0
"""Where the row is in a change envelope, for what looks at columns: in a value that was parsed, and in a schema.

Contract: pure, and as :mod:`~airflow_provider_lakecommit.formats.transforms.unwrap` reads envelopes: of a value the
image that its ``op`` is about, of a schema both images, which may have types of their own. What has no row has none
here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow_provider_lakecommit.formats.avro.writer import WriterType
from airflow_provider_lakecommit.landing import IMAGES, PAYLOAD


def row_in(value: dict[str, Any]) -> dict[str, Any] | None:
    payload = value.get(PAYLOAD)
    envelope = payload if isinstance(payload, dict) else value
    op = envelope.get("op")
    image = IMAGES.get(op) if isinstance(op, str) else None
    row = None if image is None else envelope.get(image)
    return row if isinstance(row, dict) else None


def rows_of(envelope: WriterType) -> Iterator[WriterType]:
    fields = {f.name: f.type for f in envelope.fields}
    for name in dict.fromkeys(IMAGES.values()):
        if (kind := fields.get(name)) is not None:
            parts = [p for p in kind.parts if p.kind != "null"] if kind.kind == "union" else [kind]
            yield from (parts[0],) if len(parts) == 1 and parts[0].kind == "record" else ()
