# SPDX-License-Identifier: Apache-2.0
"""A REST catalog that cannot be used is named with its address, with what defines the address, and with a remedy."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import create_server

import pytest

from airflow_provider_lakecommit.core import named
from airflow_provider_lakecommit.exceptions import CatalogError
from airflow_provider_lakecommit.iceberg.catalog import Tables

PAGE = "<html><body>Please log in</body></html>"
OWN = '{"error": {"message": "warehouse lake is unknown", "type": "NotFoundException", "code": 404}}'
LOGIN = '{"error": {"message": "no valid token", "type": "NotAuthorizedException", "code": 401}}'


@contextmanager
def answering(status: int, body: str) -> Iterator[str]:
    """Give every request one answer; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def refusal(uri: str, connection: str | None = None) -> str:
    properties = {"type": "rest", "uri": uri}
    tables = Tables(named(properties, connection) if connection else properties, "lake")
    with closing(tables), pytest.raises(CatalogError, match="LC3361") as caught:
        tables.find("shop.orders")
    return str(caught.value)


@pytest.mark.parametrize(
    ("status", "body", "cause", "remedy"),
    [
        (401, LOGIN, "no valid token", "`credential`, `token` or `auth`"),
        (401, PAGE, "HTTP status 401", "`credential`, `token` or `auth`"),
        (404, PAGE, "HTTP status 404 with '<html>", "`uri` is the address of an Iceberg REST catalog: without /v1"),
        (200, PAGE, "HTTP status 200 with '<html>", "`uri` is the address of an Iceberg REST catalog: without /v1"),
        (200, '{"hello": 1}', "with \"{'hello': 1}\"", "`uri` is the address of an Iceberg REST catalog: without /v1"),
        (404, OWN, "warehouse lake is unknown", "correct what it reports, for example `warehouse`"),
    ],
)
def test_an_answer_that_no_catalog_would_give_is_named_with_its_address_and_a_remedy(
    status: int, body: str, cause: str, remedy: str
) -> None:
    with answering(status, body) as uri:
        of_spec, of_connection = refusal(uri), refusal(uri, "warehouse_rest")
    for text in (of_spec, of_connection):
        assert cause in text
        assert remedy in text
    assert f"at {uri} (`catalog.uri` of the spec)" in of_spec
    assert f"at {uri} (Airflow connection 'warehouse_rest')" in of_connection


def test_a_port_without_a_server_is_named_with_the_reason_alone() -> None:
    with create_server(("127.0.0.1", 0)) as free:
        uri = f"http://127.0.0.1:{free.getsockname()[1]}"
    text = refusal(uri)
    assert f"at {uri} (`catalog.uri` of the spec) failed while connecting" in text
    assert "Connection refused): check that it is up and reachable from here at this address" in text
    assert "Max retries" not in text


def test_an_address_is_shown_without_its_login() -> None:
    assert "hunter2" not in refusal("http://me:hunter2-canary@127.0.0.1:1")
