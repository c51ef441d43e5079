# SPDX-License-Identifier: Apache-2.0
"""A catalog that hands out keys for its storage: a rule of the gateway, before a server that does not.

Contract: each answer about a table brings keys that open the folder of this table's data files and nothing else, and
those that were handed out for it before hold no more (unless ``rotates`` is false). So whoever goes on with keys of the
plan, of the cycle before or of another table is refused by the store.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from tests.rest.gateway import Answer, Forward, Request
from tests.rest.store import KeyedStore, Keys


@dataclass(slots=True, kw_only=True)
class Vending:
    """``way``: in the `config` of an answer, or in its `storage-credentials` next to some that open nothing."""

    store: KeyedStore
    way: Literal["config", "credentials"] = "config"
    lifetime: float | None = 3600.0
    """Seconds that the answer tells, or ``None``: it does not tell."""
    rotates: bool = True
    on: bool = True
    spoilt: bool = False
    """What is handed out opens nothing."""
    refuses: Callable[[Request], bool] = lambda _: False
    """Requests that get no answer of the server, which then is away for them."""
    given: dict[str, list[Keys]] = field(default_factory=dict)
    """All that were handed out, by table."""

    def __call__(self, request: Request, forward: Forward) -> Answer | None:
        if self.refuses(request):
            return Answer.error(503, "ServiceUnavailableException")
        answer = forward()
        path = urlsplit(request.path).path.split("/")
        about_a_table = request.is_load or (request.method == "POST" and path[-1] == "tables")
        if answer is None or answer.code != 200 or not about_a_table or not self.on:
            return answer
        loaded = json.loads(answer.body)
        table = path[-1] if request.is_load else json.loads(request.body)["name"]
        folder = loaded["metadata"]["properties"]["write.data.path"]
        self._add(loaded, folder, self._keys(table, folder.removeprefix("s3://")))
        return Answer(200, json.dumps(loaded).encode())

    @property
    def secrets(self) -> list[str]:
        """Every value that was handed out and that nobody may see."""
        return [value for keys in self.given.values() for each in keys for value in each.values]

    def end_all(self) -> None:
        """Nothing that was handed out so far holds any more."""
        for given in self.given.values():
            self.store.end(given[-1])

    def _keys(self, table: str, prefix: str) -> Keys:
        before = self.given.setdefault(table, [])
        if before and self.rotates:
            self.store.end(before[-1])
        before.append(self.store.give(prefix))
        if self.spoilt:
            self.store.end(before[-1])
        return before[-1]

    def _add(self, loaded: dict[str, object], folder: str, keys: Keys) -> None:
        until = {} if self.lifetime is None else {"s3.session-token-expires-at-ms": str(self._milliseconds())}
        handed_out = {**keys.properties, **until}
        if self.way == "config":
            loaded["config"] = {**self.store.properties, **handed_out}
            return
        wrong = {"s3.access-key-id": "nobody", "s3.secret-access-key": "nobody", "s3.session-token": "nobody"}
        loaded["config"] = dict(self.store.properties)
        loaded["storage-credentials"] = [
            {"prefix": "file:", "config": wrong},
            {"prefix": folder, "config": handed_out},
            {"prefix": "s3://", "config": wrong},
            {"prefix": f"{folder}/deeper", "config": wrong},
        ]

    def _milliseconds(self) -> int:
        assert self.lifetime is not None
        return int((time.time() + self.lifetime) * 1000)
