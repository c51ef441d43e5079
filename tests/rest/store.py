# SPDX-License-Identifier: Apache-2.0
"""An object store that checks keys: as much of S3 as Arrow's file system requests, in one process, on 127.0.0.1.

Contract: a request is taken only if it names an access key and a session token that were given out together and hold,
and only below the prefix that they were given out for. Signatures are not verified: a wrong secret key passes. All that
was refused is in :attr:`KeyedStore.refused`, all objects are in :attr:`KeyedStore.objects`. A key may be written with
and never be seen: the store keeps what each request came with only for those that it refused.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4
from xml.sax.saxutils import escape

REGION = "nowhere-1"
PAGE = 1000
"""Names in one answer to a question for a list."""
_NAMED = re.compile(r"Credential=([^/,]+)/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Keys for one prefix, ``bucket/…``."""

    prefix: str
    access_key: str
    secret_key: str
    token: str

    @property
    def values(self) -> tuple[str, ...]:
        """What nobody may see."""
        return (self.access_key, self.secret_key, self.token)

    @property
    def properties(self) -> dict[str, str]:
        """As a catalog hands them out."""
        return {
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
            "s3.session-token": self.token,
        }


@dataclass(slots=True)
class KeyedStore:
    """Usable as a context manager."""

    objects: dict[str, bytes] = field(default_factory=dict)
    writers: dict[str, str] = field(default_factory=dict)
    """By object: the access key that wrote it."""
    written: dict[str, float] = field(default_factory=dict)
    """By object: when, in seconds of the epoch, by the store's ``clock``."""
    clock: Callable[[], float] = time.time
    refused: list[str] = field(default_factory=list)
    _given: dict[tuple[str, str], str] = field(default_factory=dict)
    _parts: dict[str, dict[int, bytes]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _server: ThreadingHTTPServer | None = None

    def give(self, prefix: str) -> Keys:
        """New keys for a prefix, next to those that hold."""
        one = uuid4().hex
        keys = Keys(prefix=prefix, access_key=f"AK{one}", secret_key=f"SK{one[::-1]}", token=f"TO{uuid4().hex}")
        self._given[keys.access_key, keys.token] = prefix
        return keys

    def end(self, keys: Keys) -> None:
        """They hold no more."""
        self._given.pop((keys.access_key, keys.token), None)

    def under(self, prefix: str) -> list[str]:
        return sorted(name for name in self.objects if name.startswith(prefix))

    @property
    def properties(self) -> dict[str, str]:
        """Where it is, and no keys."""
        assert self._server is not None
        return {"s3.endpoint": f"http://127.0.0.1:{self._server.server_address[1]}", "s3.region": REGION}

    def __enter__(self) -> Self:
        store = self

        class Handler(_Handler):
            keyed = store

        class Server(ThreadingHTTPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    # -- for the handler ----------------------------------------------------------------------------------------------

    def why_refused(self, name: str, headers: Mapping[str, str]) -> str:
        """A code of S3; nothing if the keys open this object."""
        named = _NAMED.search(headers.get("Authorization", ""))
        if named is None:
            return "AccessDenied"
        prefix = self._given.get((named[1], headers.get("X-Amz-Security-Token", "")))
        if prefix is None:
            return "ExpiredToken"
        return "" if f"{name}/".startswith(f"{prefix}/") or f"{prefix}/".startswith(f"{name}/") else "AccessDenied"

    def put(self, name: str, content: bytes, headers: Mapping[str, str]) -> None:
        named = _NAMED.search(headers["Authorization"])
        assert named is not None
        with self._lock:
            self.objects[name], self.writers[name] = content, named[1]
            self.written[name] = self.clock()

    def begin(self) -> str:
        upload = uuid4().hex
        self._parts[upload] = {}
        return upload

    def part(self, upload: str, number: int, content: bytes) -> None:
        self._parts[upload][number] = content

    def joined(self, upload: str) -> bytes:
        return b"".join(content for _, content in sorted(self._parts.pop(upload).items()))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    keyed: KeyedStore

    def handle_one_request(self) -> None:
        with suppress(ConnectionError):
            super().handle_one_request()

    def log_message(self, *_: object) -> None: ...

    def _do(self) -> None:
        url = urlsplit(self.path)
        self._name, self._query = unquote(url.path).strip("/"), parse_qs(url.query, keep_blank_values=True)
        content = self._content()
        if why := self.keyed.why_refused(self._name, self.headers):
            self.keyed.refused.append(f"{self.command} {self._name}: {why}")
            self._answer(403, _xml("Error", Code=why, Message=f"{why} for {self._name}"))
            return
        getattr(self, f"_{self.command.lower()}")(content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _do

    def _head(self, _: bytes) -> None:
        found = self.keyed.objects.get(self._name)
        if found is None and "/" in self._name:
            self._answer(404)
        else:
            at = self.keyed.written.get(self._name, 0.0)
            self._answer(200, found or b"", {"Last-Modified": formatdate(at, usegmt=True)})

    def _get(self, _: bytes) -> None:
        found = self.keyed.objects.get(self._name)
        if "list-type" in self._query:
            self._list(self._name.split("/")[0])
        elif found is None:
            self._answer(404, _xml("Error", Code="NoSuchKey", Message="there is no such object"))
        elif byte_range := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            start, end = int(byte_range[1]), int(byte_range[2] or len(found) - 1)
            self._answer(206, found[start : end + 1], {"Content-Range": f"bytes {start}-{end}/{len(found)}"})
        else:
            self._answer(200, found)

    def _list(self, bucket: str) -> None:
        """A page of keys, and of the folders that replace those behind the delimiter."""
        prefix, cut = (self._query.get(key, [""])[0] for key in ("prefix", "delimiter"))
        after = self._query.get("continuation-token", [""])[0]
        keys = [name.partition("/")[2] for name in self.keyed.under(f"{bucket}/{prefix}")]
        ends = {key: key.find(cut, len(prefix)) if cut else -1 for key in keys}
        names = sorted({key if end < 0 else key[: end + 1] for key, end in ends.items()} - {""})
        left = [name for name in names if name > after]
        page, listed = left[:PAGE], ""
        for name in page:
            whole = f"{bucket}/{name}"
            if whole in self.keyed.objects:
                size, at = str(len(self.keyed.objects[whole])), self.keyed.written.get(whole, 0.0)
                moment = f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S.000Z}"
                listed += f"<Contents>{_tag('Key', name)}{_tag('Size', size)}{_tag('LastModified', moment)}</Contents>"
            else:
                listed += f"<CommonPrefixes>{_tag('Prefix', name)}</CommonPrefixes>"
        more = {"NextContinuationToken": page[-1]} if len(left) > PAGE else {}
        facts = {"Name": bucket, "KeyCount": str(len(page)), "IsTruncated": "true" if more else "false", **more}
        self._answer(200, _xml("ListBucketResult", inside=listed, **facts))

    def _put(self, content: bytes) -> None:
        if "partNumber" in self._query:
            self.keyed.part(self._query["uploadId"][0], int(self._query["partNumber"][0]), content)
        else:
            self.keyed.put(self._name, content, self.headers)
        self._answer(200, extra={"ETag": f'"{uuid4().hex}"'})

    def _post(self, _: bytes) -> None:
        bucket, _, key = self._name.partition("/")
        if "uploads" in self._query:
            body = _xml("InitiateMultipartUploadResult", Bucket=bucket, Key=key, UploadId=self.keyed.begin())
        else:
            self.keyed.put(self._name, self.keyed.joined(self._query["uploadId"][0]), self.headers)
            body = _xml("CompleteMultipartUploadResult", Bucket=bucket, Key=key, ETag=uuid4().hex)
        self._answer(200, body)

    def _delete(self, _: bytes) -> None:
        self.keyed.objects.pop(self._name, None)
        self._answer(204)

    def _content(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            content = self._chunks()
        else:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return _unframed(content) if "aws-chunked" in self.headers.get("Content-Encoding", "") else content

    def _chunks(self) -> bytes:
        out = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            out += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return out

    def _answer(self, code: int, body: bytes = b"", extra: Mapping[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in {"Last-Modified": formatdate(usegmt=True), **(extra or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _unframed(content: bytes) -> bytes:
    """Without the frames in which S3's clients send chunks with their checksums."""
    out = b""
    while content:
        size, _, rest = content.partition(b"\r\n")
        length = int(size.split(b";")[0], 16)
        if not length:
            break
        out, content = out + rest[:length], rest[length + 2 :]
    return out


def _tag(name: str, text: str) -> str:
    return f"<{name}>{escape(text)}</{name}>"


def _xml(kind: str, inside: str = "", **tags: str) -> bytes:
    message = "".join(_tag(name, text) for name, text in tags.items())
    return f'<?xml version="1.0" encoding="UTF-8"?><{kind}>{message}{inside}</{kind}>'.encode()
