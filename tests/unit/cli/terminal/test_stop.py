# SPDX-License-Identifier: Apache-2.0
"""Signals become one exception, in the main thread, with the exit code that names them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from airflow_provider_lakecommit.cli.terminal.stop import Signals, Stopped


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["TERM", "INT"])
def test_a_signal_is_raised_as_what_it_was(number: signal.Signals, code: int) -> None:
    with pytest.raises(Stopped) as stopped, Signals():
        os.kill(os.getpid(), number)
    assert stopped.value.code == code
    assert str(stopped.value) == number.name


def test_stopped_is_not_taken_for_a_failure() -> None:
    assert not issubclass(Stopped, Exception)


def test_the_handlers_before_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with Signals():
        assert signal.getsignal(signal.SIGTERM) != before[0]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_handlers_that_a_user_replaced_are_installed_again() -> None:
    with Signals() as signals:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signals.install()
        with pytest.raises(Stopped):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_signal_whose_exception_was_lost_while_the_engine_started_is_raised_after_that() -> None:
    with Signals() as signals:
        with suppress(Stopped):
            os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Stopped) as stopped:
            signals.check()
    assert stopped.value.code == 143


def test_any_thread_may_request_a_signal_whose_exception_was_lost() -> None:
    with Signals() as signals, ThreadPoolExecutor(1) as threads:
        assert threads.submit(signals.check).exception() is None
        with suppress(Stopped):
            os.kill(os.getpid(), signal.SIGTERM)
        assert isinstance(threads.submit(signals.check).exception(), Stopped)


TWICE = """
import os, signal
from airflow_provider_lakecommit.cli.terminal.stop import Signals, Stopped
with Signals() as signals:
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except Stopped:
        signals.install()
        print("first", flush=True)
        os.kill(os.getpid(), signal.SIGINT)
    print("never")
"""


def test_a_second_signal_ends_the_process_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True, check=False, timeout=600)
    assert (done.returncode, done.stdout) == (-signal.SIGINT, "first\n")
