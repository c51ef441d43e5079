# SPDX-License-Identifier: Apache-2.0
"""Python programs that start at once: each is a process of its own, forked from one that has imported what they need.

Most of a short program's processor time is spent on imports, and the tests run hundreds of programs. A program has its
own process id, arguments, folder, environment, output and exit code. What it does not show is what a fresh interpreter
imports, and when: tests of that start one.

Contract: the process that is forked from is started by the first program, does nothing itself, and ends with pytest,
however that ends.
"""

from __future__ import annotations

import atexit
import json
import multiprocessing
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from socketserver import ForkingMixIn, StreamRequestHandler, UnixStreamServer
from typing import Any

from tests.support.leftovers import SERVERS

__all__ = ["Forks"]

START_SECONDS = 600.0


@dataclass(slots=True)
class Forks:
    """Programs that begin with the same imports.

    :param preload: modules; with ``.*`` behind it, a package and all that is in it
    """

    preload: Sequence[str]
    _server: subprocess.Popen[bytes] | None = None
    _folder: tempfile.TemporaryDirectory[str] | None = field(default=None, repr=False)

    def run(
        self, main: str, *arguments: str, timeout: float, folder: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A program from its begin to its end.

        :param main: ``module:function``, called with the list of arguments; what it returns is the exit code
        :param folder: in which it runs, where that is not the one of the tests
        :raises TimeoutError: it did not end in time
        """
        with tempfile.TemporaryDirectory() as where, socket.socket(socket.AF_UNIX) as line:
            call = {"main": main, "arguments": arguments, "env": dict(os.environ), "told": where}
            line.settimeout(timeout)
            line.connect(self._address())
            line.sendall(json.dumps({**call, "folder": str(folder or Path.cwd())}).encode() + b"\n")
            with line.makefile() as answers:
                code = json.loads(answers.readline())
            out, err = (Path(where, name).read_text() for name in ("out", "err"))
        return subprocess.CompletedProcess([main, *arguments], code, out, err)

    def _address(self) -> str:
        if self._server is None or self._server.poll() is not None:
            self._folder = tempfile.TemporaryDirectory()
            command = [sys.executable, "-m", __name__, self._folder.name, *self.preload]
            self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            SERVERS.add(self._server.pid)
            atexit.register(_end, self._server, self._folder)
            ready, _, _ = select.select([self._server.stdout], [], [], START_SECONDS)
            if not ready or not os.read(ready[0].fileno(), 1):
                raise RuntimeError(f"what programs are forked from did not start: {command}")
        assert self._folder is not None
        return f"{self._folder.name}/socket"


def _end(server: subprocess.Popen[bytes], folder: tempfile.TemporaryDirectory[str]) -> None:
    server.kill()
    server.communicate()
    folder.cleanup()


class _Server(ForkingMixIn, UnixStreamServer):
    """Ends when whoever started it has gone: then nobody holds the other end of its input."""

    def service_actions(self) -> None:
        super().service_actions()
        if select.select([sys.stdin], [], [], 0)[0]:
            raise SystemExit


class _Program(StreamRequestHandler):
    def handle(self) -> None:
        child = multiprocessing.get_context("fork").Process(target=_run, args=(json.loads(self.rfile.readline()),))
        child.start()
        child.join()
        self.wfile.write(f"{child.exitcode}\n".encode())


def _run(call: dict[str, Any]) -> None:
    """In the program's process."""
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(Path(call["told"], name), os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.chdir(call["folder"])
    os.environ.clear()
    os.environ.update(call["env"])
    module, _, name = call["main"].partition(":")
    sys.argv = [module, *call["arguments"]]
    sys.exit(getattr(import_module(module), name)(call["arguments"]))


def _load(name: str) -> None:
    package = import_module(name.removesuffix(".*"))
    if name.endswith(".*"):
        for found in walk_packages(package.__path__, f"{package.__name__}."):
            import_module(found.name)


if __name__ == "__main__":
    # What a library prints while it is imported is not our word that all is ready.
    ready = os.dup(1)
    os.dup2(2, 1)
    for each in sys.argv[2:]:
        _load(each)
    with _Server(f"{sys.argv[1]}/socket", _Program) as server:
        os.write(ready, b"\n")
        server.serve_forever()
