# SPDX-License-Identifier: Apache-2.0
"""A REST catalog's client that uses only allowed parts of the server's answers, and only answers of bounded size.

Contract: the server's configuration may set the properties that
:func:`~airflow_provider_lakecommit.iceberg.settings.client_settings` lists. Login, certificates, classes and
profiles are always the connection's. A table's files are opened with the properties that the server issues for the
table, never with the table's own. :attr:`RestClient.credentials` are those of the newest answer about a table.

Failure story: an answer that is too large is a :class:`CatalogError` with the request; the rest of the answer is not
read.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog.rest import RestCatalog, TableResponse
from pyiceberg.table import Table
from requests import Response, Session

from airflow_provider_lakecommit.exceptions import CatalogError
from airflow_provider_lakecommit.iceberg.bounded import bounded_body, check_json
from airflow_provider_lakecommit.iceberg.settings import client_settings, storage_settings

_CHUNK = 16 << 10
"""Bytes read at once: unpacked, they are a thousand times as many at most."""


class RestClient(RestCatalog):
    """A client of one server."""

    credentials: tuple[tuple[str, dict[str, str]], ...] = ()
    """Prefixes of locations, and the properties for them."""

    def _fetch_config(self) -> None:
        own = dict(self.properties)
        super()._fetch_config()
        self.properties = {**own, **client_settings(self.properties)}
        self.uri = self.properties["uri"]

    def _config_headers(self, session: Session) -> None:
        super()._config_headers(session)
        session.hooks["response"].append(_bounded)

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> Table:
        given, location = table_response.storage_credentials, table_response.metadata_location
        self.credentials = tuple((each.prefix, storage_settings(each.config)) for each in given)
        handed_out = {**table_response.config, **self._resolve_storage_credentials(given, location)}
        return Table(
            identifier=identifier_tuple,
            metadata_location=location or "",
            metadata=table_response.metadata,
            io=self._load_file_io(storage_settings(handed_out), location),
            catalog=self,
            config=table_response.config,
        )


def _bounded(response: Response, **_: Any) -> None:
    try:
        if "," in response.headers.get("Content-Encoding", ""):
            raise ValueError("it is packed more than once")
        body = bounded_body(response.iter_content(_CHUNK))
        check_json(body)
    except ValueError as e:
        response.close()
        request = f"{response.request.method} {(response.url or '').partition('?')[0]}"
        raise CatalogError(
            "LC3334",
            f"the REST catalog's answer to {request} is not read: {e}; if the table is that large, expire snapshots",
        ) from None
    # iter_content() can be read only once; JSON is UTF-8, whatever the headers are.
    response._content = body
    response.encoding = "utf-8"
