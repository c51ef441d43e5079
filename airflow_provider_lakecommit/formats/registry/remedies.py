# SPDX-License-Identifier: Apache-2.0
"""Remedies for a registry without a valid answer, by the client's error.

Contract: pure. A remedy names the setting or part of the address that is most often wrong.
"""

from __future__ import annotations

_NO_ANSWER = "check that it is up, and check its url"
_REMEDIES = (
    ("Hostname mismatch", "its url must use a name of its certificate"),
    ("IP address mismatch", "its url must use a name of its certificate"),
    ("certificate has expired", "renew its certificate"),
    ("CERTIFICATE_VERIFY_FAILED", "set `ssl.ca.location` to the issuer of its certificate, and check its url"),
    (
        "CERTIFICATE_REQUIRED",
        "it requires client certificates: set `ssl.certificate.location` and `ssl.key.location`",
    ),
    ("WRONG_VERSION_NUMBER", "it does not use TLS on that port: use http in its url, or another port"),
    ("record layer failure", "it does not use TLS on that port: use http in its url, or another port"),
    (
        "disconnected without sending",
        "check the port: brokers answer so, and registries with TLS if the url begins with http",
    ),
    ("illegal status line", "check the port: it does not use HTTP"),
    ("ame or service not known", "check the host in its url"),
    ("ame resolution", "check the host in its url, and its DNS entry"),
    ("OAuthTokenError", "check `bearer.auth.issuer.endpoint.url`, and the client of `bearer.auth.…`"),
    ("UNEXPECTED_EOF", "check the port: it does not use TLS"),
    ("InvalidURL", "correct its url, which is not an address"),
    ("JSONDecodeError", "check its url: the answer is not JSON, but perhaps the page of a login or proxy"),
)


def remedy_of(error: str) -> str:
    return next((remedy for sign, remedy in _REMEDIES if sign in error), _NO_ANSWER)


def remedy_of_status(status: int) -> str:
    if status in (401, 403):
        return "check the credentials"
    if 300 <= status < 400:
        return "it redirects: use the target address as its url, which often begins with https"
    if status == 404:
        return "check that its url has the full path, as in http://HOST:8080/apis/ccompat/v7"
    if status == 429:
        return "its rate limit is exceeded: run fewer tasks at once, or raise the limit"
    return "check its url and its own log"
