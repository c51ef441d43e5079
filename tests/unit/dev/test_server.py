# SPDX-License-Identifier: Apache-2.0
"""Servers of tests and benchmarks: whatever their start ends in, nothing of them is left."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from dev.servers.server import Server


class Interrupted(Server):
    """A user presses Ctrl-C while it starts."""

    name = "interrupted"
    what = "server"
    started: int | None = None

    def command(self) -> Sequence[str]:
        return [sys.executable, "-S", "-c", "import time; time.sleep(600)"]

    def answers(self) -> bool:
        self.started = self.pid
        raise KeyboardInterrupt


def test_a_server_whose_start_is_interrupted_is_ended(tmp_path: Path) -> None:
    server = Interrupted(tmp_path)

    with pytest.raises(KeyboardInterrupt):
        server.start()

    assert server.started is not None
    assert server.pid is None
    assert not psutil.pid_exists(server.started)
