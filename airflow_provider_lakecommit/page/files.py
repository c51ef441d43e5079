# SPDX-License-Identifier: Apache-2.0
"""The built files of the page, and the headers of every answer.

Only files that exist when the app is created are served, by name. Nothing of another origin is loaded, there is no
inline script, and only Airflow may frame the page.
"""

from __future__ import annotations

from pathlib import Path

STATIC = Path(__file__).with_name("static")
INDEX = "index.html"
ASSETS = "assets"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
UNBUILT = b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Lake commits</title>
<p>The page was not built in this checkout: run <code>make ui</code> (Node.js 20 or newer), then restart the API server.
What it shows is at <a href="api/v1/landings">api/v1/landings</a>.</p></html>
"""


def built(folder: Path = STATIC) -> dict[str, tuple[bytes, str]]:
    """Return the files by their path below the page, with their type; without a build, a page that reports it."""
    paths = [p for p in sorted(folder.rglob("*")) if p.is_file() and p.suffix in TYPES]
    found = {p.relative_to(folder).as_posix(): (p.read_bytes(), TYPES[p.suffix]) for p in paths}
    return found if INDEX in found else {INDEX: (UNBUILT, TYPES[".html"])}
