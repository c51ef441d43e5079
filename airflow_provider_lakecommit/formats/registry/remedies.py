# SPDX-License-Identifier: Apache-2.0
"""What a person can do about a registry that gives no answer of one, by what its client says of it.

Contract: pure. What is said names the setting or the part of the address that is most often wrong then.
"""

from __future__ import annotations

__all__ = ["remedy_of", "remedy_of_status"]

_NO_ANSWER = "check that it is up, and its url"
_REMEDIES = (
    ("Hostname mismatch", "its url must have a name that its certificate has"),
    ("IP address mismatch", "its url must have a name that its certificate has"),
    ("certificate has expired", "its certificate is to be renewed"),
    ("CERTIFICATE_VERIFY_FAILED", "give who signed its certificate as `ssl.ca.location`, or is its url another's?"),
    (
        "CERTIFICATE_REQUIRED",
        "it wants a certificate of its clients: give `ssl.certificate.location` and `ssl.key.location`",
    ),
    ("WRONG_VERSION_NUMBER", "it speaks no TLS there: its url begins with http, or has another port"),
    ("record layer failure", "it speaks no TLS there: its url begins with http, or has another port"),
    (
        "disconnected without sending",
        "is that port a registry's? A broker does so, and a registry with TLS where its url begins with http",
    ),
    ("illegal status line", "is that port a registry's? What answers there does not speak HTTP"),
    ("ame or service not known", "is the host in its url spelt right?"),
    ("ame resolution", "is the host in its url spelt right, and does it have an address here?"),
    ("OAuthTokenError", "check `bearer.auth.issuer.endpoint.url`, and the client that `bearer.auth.…` names"),
    ("UNEXPECTED_EOF", "is that port a registry's? What answers there does not speak TLS"),
    ("InvalidURL", "its url is no address"),
    ("JSONDecodeError", "is its url complete, and a registry's? A page for a login or of a proxy is no JSON either"),
)


def remedy_of(error: str) -> str:
    """By the type and the text of an error."""
    return next((remedy for sign, remedy in _REMEDIES if sign in error), _NO_ANSWER)


def remedy_of_status(status: int) -> str:
    """By the status of an answer that is none of a registry's own."""
    if status in (401, 403):
        return "check the credentials"
    if 300 <= status < 400:
        return "it sends elsewhere: give the address that it sends to as its url, which often begins with https"
    if status == 404:
        return "is its url complete? The path counts, as in http://HOST:8080/apis/ccompat/v7"
    if status == 429:
        return "it is asked more often than it allows: have fewer tasks at once, or raise its limit"
    return "check its url, and its own log"
