# SPDX-License-Identifier: Apache-2.0
"""A REST catalog whose answers the test chooses: any text, of any size, packed or not."""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from tests.fakes.lake import BY_BUCKET, SCHEMA

MIB = 1 << 20


def metadata(properties: dict[str, str] | None = None, location: str = "s3://bucket/t") -> dict[str, Any]:
    """The metadata of a table, as JSON values."""
    made = new_table_metadata(SCHEMA, BY_BUCKET, UNSORTED_SORT_ORDER, location, properties=properties or {})
    found: dict[str, Any] = json.loads(made.model_dump_json())
    return found


def packed(size: int) -> Iterable[bytes]:
    """A gzip of so many spaces, without its end: whoever is careful does not come that far."""
    packing = zlib.compressobj(9, wbits=31)
    yield packing.compress(b"{") + packing.flush(zlib.Z_FULL_FLUSH)
    # Behind a full flush nothing depends on what was before.
    yield (packing.compress(b" " * MIB) + packing.flush(zlib.Z_FULL_FLUSH)) * (size // MIB)


@dataclass
class RestServer:
    """Usable as a context manager. ``config`` and ``table`` are the answers; bytes are sent as they are."""

    config: Any = field(default_factory=lambda: {"defaults": {}, "overrides": {}})
    table: Any = field(default_factory=lambda: {"metadata-location": "s3://bucket/m.json", "metadata": metadata()})
    encoding: str = ""
    """Of a table's answer that is bytes."""
    requests: list[str] = field(default_factory=list)

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests.append(self.path)
                self._answer(outer.config if "/config" in self.path else outer.table)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.requests.append(self.path)
                self._answer({"access_token": "given", "token_type": "bearer"} if "token" in self.path else outer.table)

            def _answer(self, what: Any) -> None:
                raw = isinstance(what, (list, bytes))
                body = what if isinstance(what, list) else [what if raw else json.dumps(what).encode()]
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                if raw and outer.encoding:
                    self.send_header("Content-Encoding", outer.encoding)
                self.end_headers()
                try:
                    for chunk in body:
                        self.wfile.write(chunk)
                except OSError:  # the client has read enough
                    pass

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
