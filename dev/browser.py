# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven by its own protocol (Chrome DevTools) over a WebSocket: as much of it as pictures of
pages need.

Contract: one page of one size; :meth:`Browser.picture` returns a PNG when the texts that it waits for are on the page
and a moment has passed in which it is drawn. The browser and its profile end with the ``with``.

Failure story: no Chromium is a :class:`BrowserError` that says what to install; a page that does not show a text in
time is one that says what it shows instead.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from websockets.sync.client import ClientConnection, connect

__all__ = ["KEYS", "PROGRAMS", "Browser", "BrowserError"]

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
ANSWER_SECONDS = 60.0
START_SECONDS = 60.0
PAGE_SECONDS = 90.0
STILL_SECONDS = 1.5
LOOK_SECONDS = 0.3
KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), "Escape": (27, "")}
"""Their numbers, and what they type."""
SHOWN = """[document, ...[...document.querySelectorAll("iframe")].map((f) => f.contentDocument)]
    .map((d) => d?.body?.innerText ?? "").join("\\n")"""


class BrowserError(RuntimeError):
    """No browser, or not the page that was wanted."""


class Browser:
    """:param width: of the page, in pixels, as is ``height``"""

    def __init__(self, width: int = 1280, height: int = 720) -> None:
        self._size = width, height
        self._profile = Path(tempfile.mkdtemp(prefix="lakecommit-browser-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: ClientConnection | None = None
        self._ends = ExitStack()
        self._number = 0

    def __enter__(self) -> Self:
        program = next(filter(None, map(shutil.which, PROGRAMS)), None)
        if program is None:
            raise BrowserError("no Chromium: install it (Debian or Ubuntu: apt-get install chromium)")
        options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--lang=en-US")
        command = [program, *options, f"--user-data-dir={self._profile}", "about:blank"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._ends.callback(self._end)
        self._socket = self._ends.enter_context(connect(self._address(), max_size=None, open_timeout=START_SECONDS))
        self.resize(*self._size)
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def _end(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)

    def set_cookie(self, url: str, name: str, value: str) -> None:
        """For what is visited later."""
        self._ask("Network.setCookie", url=url, name=name, value=value)

    def visit(self, url: str) -> None:
        """Go there; what is on the page is not waited for."""
        self._ask("Page.navigate", url=url)

    def picture(self, *texts: str) -> bytes:
        """PNG of what is seen, once it shows all of *texts*.

        :raises BrowserError: it does not
        """
        for text in texts:
            self.wait_for(text)
        time.sleep(STILL_SECONDS)
        return base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"])

    def wait_for(self, text: str, seconds: float = PAGE_SECONDS) -> None:
        """Until it is shown, be it in a frame of the page.

        :raises BrowserError: it is not
        """
        deadline = time.monotonic() + seconds
        while text not in (shown := self.text()):
            if time.monotonic() > deadline:
                raise BrowserError(f"{self.evaluate('location.href')} does not show {text!r}, but {shown[:2000]}")
            time.sleep(LOOK_SECONDS)

    def text(self) -> str:
        """What is shown, frames of the same origin with it."""
        return str(self.evaluate(SHOWN) or "")

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """Another size, in pixels, and light or dark as of the system."""
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[theme])

    def move_to(self, zone: str) -> None:
        """Another time zone, as in `Asia/Tokyo`."""
        self._ask("Emulation.setTimezoneOverride", timezoneId=zone)

    def press(self, key: str) -> None:
        """A key of the keyboard, where the focus is: one of :data:`KEYS`."""
        code, text = KEYS[key]
        for kind, typed in (("keyDown", text), ("keyUp", "")):
            more = {"text": typed} if typed else {}
            self._ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression on the page; that of a promise when it is there."""
        return self._ask("Runtime.evaluate", expression=expression, awaitPromise=True)["result"].get("value")

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        assert self._socket is not None
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            told = json.loads(self._socket.recv(timeout=ANSWER_SECONDS))
            if told.get("id") == self._number:
                if "error" in told:
                    raise BrowserError(f"{method}: {told['error']}")
                answer: dict[str, Any] = told["result"]
                return answer

    def _address(self) -> str:
        """Of its first page; it writes the port that it has chosen into its profile."""
        note, deadline = self._profile / "DevToolsActivePort", time.monotonic() + START_SECONDS
        while not note.exists() or not note.read_text().strip():
            if time.monotonic() > deadline:
                raise BrowserError(f"Chromium did not start within {START_SECONDS:.0f} s")
            time.sleep(LOOK_SECONDS)
        port = note.read_text().split()[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=ANSWER_SECONDS) as answer:
            pages: Sequence[dict[str, str]] = json.load(answer)
        return next(page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page")
